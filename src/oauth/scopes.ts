/** What a token may open besides what its user's grants say (RFC 6749, section 3.3). */
export const mcpScopes = ["mcp:tools", "mcp:resources"] as const;
export type McpScope = (typeof mcpScopes)[number];
