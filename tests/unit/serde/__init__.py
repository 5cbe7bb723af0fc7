"""The serializer."""
