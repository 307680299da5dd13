"""The `rag` command and the MCP server, on top of the library, which imports none of this."""
