"""The MCP server, as a process of its own."""
