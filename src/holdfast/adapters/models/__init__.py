"""Models that come in packages: nothing is fetched when they are used."""
