/** Connects with each library; `ask` calls the tool `select`. */
const args = { database: "main", from: "users", columns: ["name"] };

export const connect = {
  async "@langchain/mcp-adapters"(url, authProvider) {
    const { MultiServerMCPClient } = await import("@langchain/mcp-adapters");
    const client = new MultiServerMCPClient({
      mcpServers: { database: { transport: "http", url, authProvider } },
    });
    const tools = await client.getTools();
    const select = tools.find(({ name }) => name === "select");
    return { ask: () => select.invoke(args), close: () => client.close() };
  },

  async "@openai/agents"(url, authProvider) {
    const { MCPServerStreamableHttp } = await import("@openai/agents");
    const database = new MCPServerStreamableHttp({ name: "database", url, authProvider });
    await database.connect();
    return { ask: () => database.callTool("select", args), close: () => database.close() };
  },

  async "@ai-sdk/mcp"(url, authProvider) {
    const { createMCPClient } = await import("@ai-sdk/mcp");
    const client = await createMCPClient({ transport: { type: "http", url, authProvider } });
    const { select } = await client.tools();
    const options = { toolCallId: "1", messages: [] };
    return { ask: () => select.execute(args, options), close: () => client.close() };
  },

  async "@mastra/mcp"(url, authProvider) {
    const { MCPClient } = await import("@mastra/mcp");
    const client = new MCPClient({ servers: { database: { url: new URL(url), authProvider } } });
    const { database_select: select } = await client.listTools();
    return { ask: () => select.execute(args), close: () => client.disconnect() };
  },
};
