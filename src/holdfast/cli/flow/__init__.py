"""The general commands, on a flow location: one file a command. Nothing of it is loaded where no location is named."""
