/**
 * The bare official MCP server, as in its documentation: one tool posts a query to the upstream and returns
 * its rows. `node bench/mcp/official-server.ts <upstream>` prints its port.
 */
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { Pool } from "undici";
import { z } from "zod";

const [, , upstream = ""] = process.argv;
const pool = new Pool(upstream, { connections: 64, pipelining: 1 });
const headers = { "content-type": "application/json" };
const inputSchema = z.object({
  database: z.string(),
  from: z.string(),
  columns: z.array(z.string()),
  limit: z.number().int().optional(),
});
const outputSchema = z.object({ rows: z.array(z.record(z.string(), z.unknown())) });
const answerShape = z.object({ data: outputSchema.shape.rows });

function createMcpServer(): McpServer {
  const server = new McpServer({ name: "bare", version: "1.0.0" });
  const description = "Reads rows of a table.";
  server.registerTool("select", { description, inputSchema, outputSchema }, async (Select) => {
    const body = JSON.stringify({ Select });
    const answer = await pool.request({ path: "/query", method: "POST", headers, body });
    const { data: rows } = answerShape.parse(await answer.body.json());
    const text = JSON.stringify({ rows });
    return { content: [{ type: "text", text }], structuredContent: { rows } };
  });
  return server;
}

const handler = createMcpHandler(createMcpServer);
const server = createServer(getRequestListener((request) => handler.fetch(request)));
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  console.log(typeof address === "object" ? address?.port : "");
});
