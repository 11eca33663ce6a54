/** A simulated model. It answers every question with the number of VIPs. */
import { text } from "node:stream/consumers";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { z } from "zod";

const { GATEHOUSE_MCP_URL = "", GATEHOUSE_TOKEN = "" } = process.env;
const client = new Client({ name: "counting", version: "1.0.0" });
const requestInit = { headers: { authorization: `Bearer ${GATEHOUSE_TOKEN}` } };
await client.connect(
  new StreamableHTTPClientTransport(new URL(GATEHOUSE_MCP_URL), { requestInit }),
);
await client.callTool({
  name: "describe_table",
  arguments: { database: "shop", table: "customers" },
});
const where = { column: "vip", cmp: "=", value: true };
const { structuredContent } = await client.callTool({
  name: "count",
  arguments: { database: "shop", from: "customers", where },
});
const { count } = z.object({ count: z.number() }).parse(structuredContent);
await client.close();
process.stdout.write(`I was asked: ${await text(process.stdin)}\n${count}\n`);
