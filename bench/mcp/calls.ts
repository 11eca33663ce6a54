/** Calls of `/mcp` and the systems that they are sent to. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { handshakeCall, statelessCall } from "../../test/mcp/messages.ts";
import { startGatehouse } from "../peers/gatehouse.ts";
import { startNode } from "../peers/node.ts";
import type { Scene } from "../peers/scene.ts";
import { startAnswering } from "../peers/upstream.ts";
import type { Program } from "../rig/program.ts";
import { startOfficial } from "./official.ts";

/** The first system of a scenario is Gatehouse. */
export interface Asked {
  readonly name: string;
  readonly port: number;
  readonly program: Pick<Program, "cpuSeconds" | "stop">;
}

export interface McpScenario {
  readonly name: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** A part of every correct response. */
  readonly answer: string;
  readonly systems: readonly Asked[];
}

const select = {
  name: "select",
  arguments: { database: "main", from: "users", columns: ["id", "name"], limit: 10 },
};
const TOOLS = 1000;
const nameOf = (index: number) => `service_${index % 20}_operation_${index}`;

/** A list of many tools of about 500 bytes each. */
function toolList(): string {
  const tools = Array.from({ length: TOOLS }, (_, index) => ({
    name: nameOf(index),
    title: `Operation ${index}`,
    description: `Carries out operation ${index}, and answers "done" with what has changed by it.`,
    inputSchema: {
      type: "object",
      properties: {
        id: { type: "string", description: "The id of the object.", maxLength: 64 },
        fields: { type: "array", items: { type: "string" }, description: "Fields to answer." },
        limit: { type: "integer", minimum: 1, maximum: 100, default: 10 },
      },
      required: ["id"],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: index % 2 === 0, openWorldHint: false },
  }));
  const result = { resultType: "complete", tools, ttlMs: 0, cacheScope: "private" };
  return JSON.stringify({ jsonrpc: "2.0", id: 1, result });
}

/** Of four tools, two are allowed, one is for other users, and one has no rule. */
function rules(): string {
  const rule = (index: number) => {
    const permission = index % 2 === 0 ? "SELECT" : "DROP";
    return `[[mcp.tools]]\nname = "${nameOf(index)}"\npermission = "${permission}"\ndatabase = "main"\n`;
  };
  const ruled = Array.from({ length: TOOLS }, (_, index) => index).filter((at) => at % 4 < 3);
  return ruled.map(rule).join("");
}

const callRule =
  '[[mcp.tools]]\nname = "select"\npermission = "SELECT"\ndatabase_argument = "database"\n';

const rowsText = (row: object) => JSON.stringify({ rows: [row], truncated: false });

function callAnswer(): string {
  const row = { name: "x".repeat(158) };
  const content = [{ type: "text", text: rowsText(row) }];
  const result = { resultType: "complete", content, structuredContent: { rows: [row] } };
  return JSON.stringify({ jsonrpc: "2.0", id: 1, result });
}

/** Starts all systems; they stop with the stack. */
export async function openCalls(
  { world, upstream }: Scene,
  opened: AsyncDisposableStack,
): Promise<readonly McpScenario[]> {
  const started = async <T extends Pick<Asked, "program">>(starting: Promise<T>): Promise<T> => {
    const system = await starting;
    opened.defer(() => system.program.stop());
    return system;
  };
  const answers = [callAnswer(), toolList()];
  const { ports } = await started(startAnswering(world.directory, answers));
  const [callPort = 0, listPort = 0] = ports;
  const queryPort = upstream.ports.get(200) ?? 0;
  const behind = (port: number) => `upstream = "http://127.0.0.1:${port}/mcp"\n`;
  const gatehouse = async (name: string, mcp: string): Promise<Asked> =>
    started(startGatehouse(world, queryPort, { name, mcp }));
  const forward = async (port: number): Promise<Asked> => {
    const bare = await started(startNode("bare", world, port));
    return { ...bare, name: `${bare.name}, same bytes` };
  };
  const embedded = await gatehouse("Gatehouse, embedded server", "");
  const official = await started(startOfficial(queryPort));
  const proxied = await gatehouse("Gatehouse, proxy", behind(callPort) + callRule);
  const bareCall = await forward(callPort);
  const bareList = await forward(listPort);
  const lister = await gatehouse("Gatehouse, 500 of 1,000 tools shown", behind(listPort) + rules());
  const stateless = { ...statelessCall("tools/call", select), answer: "truncated" };
  const handshake = handshakeCall("tools/call", select, { "mcp-protocol-version": "2025-11-25" });
  const list = { ...statelessCall("tools/list"), answer: nameOf(998) };
  const row = '"structuredContent":{"rows":[{"name":"';
  return [
    { ...stateless, answer: row, name: "tool call, embedded", systems: [embedded, official] },
    {
      ...handshake,
      answer: row,
      name: "tool call of 2025-11-25, embedded",
      systems: [embedded, official],
    },
    {
      ...stateless,
      answer: row,
      name: "tool call, proxied",
      systems: [proxied, bareCall, official],
    },
    { ...list, name: "list of 1,000 tools, proxied", systems: [lister, bareList] },
  ];
}

/** Writes the request body to a file for the load generator. */
export function bodyFileOf({ name, body }: McpScenario, directory: string): string {
  const file = path.join(directory, `${name.replaceAll(/\W+/g, "-")}.json`);
  writeFileSync(file, body);
  return file;
}
