"""Settings files of others: our entries are put in and taken out, and everything else stays as it is, to the byte."""
