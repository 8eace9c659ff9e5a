"""The wake tools as an MCP server on stdio: `routines mcp`."""
