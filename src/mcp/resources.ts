import {
  type McpServer,
  ProtocolError,
  ProtocolErrorCode,
  type ReadResourceResult,
  ResourceTemplate,
} from "@modelcontextprotocol/server";
import { isPlainName } from "../query/names.ts";
import { Refusal } from "../refusal.ts";
import type { SchemaSource } from "../upstream/schema-source.ts";

/** Tables that one answer lists at most; the rest are found by the template. */
const LARGEST_LIST = 1000;
const scheme = "gatehouse:///";
const mimeType = "application/json";

interface TableResource {
  readonly uri: string;
  readonly name: string;
  readonly mimeType: string;
}

async function listTables<Caller>(
  schema: SchemaSource<Caller>,
  principal: Caller,
  signal: AbortSignal,
): Promise<TableResource[]> {
  const found: TableResource[] = [];
  for (const database of await schema.listDatabases(principal, signal)) {
    for (const table of await schema.listTables(principal, database, signal)) {
      found.push({ uri: `${scheme}${database}/${table}`, name: `${database}/${table}`, mimeType });
      if (found.length === LARGEST_LIST) return found;
    }
  }
  return found;
}

/** What a caller is told, in the protocol's terms. */
function asProtocolError(error: unknown, uri: string): unknown {
  if (!(error instanceof Refusal)) return error;
  const data = { uri, code: error.code };
  return new ProtocolError(ProtocolErrorCode.InvalidParams, error.message, data);
}

async function readTable<Caller>(
  schema: SchemaSource<Caller>,
  principal: Caller,
  uri: string,
  signal: AbortSignal,
): Promise<ReadResourceResult> {
  const [database = "", table = "", ...more] = uri.slice(scheme.length).split("/");
  const isTable = [database, table].every(isPlainName) && more.length === 0;
  try {
    if (!isTable) throw new Refusal("schema_not_found");
    const description = await schema.describeTable(principal, database, table, signal);
    const text = JSON.stringify({ database, table, ...description });
    return { contents: [{ uri, mimeType, text }] };
  } catch (error) {
    throw asProtocolError(error, uri);
  }
}

/** Registers the tables' schemas as resources on the server of one request. */
export function registerResources<Caller>(
  server: McpServer,
  schema: SchemaSource<Caller>,
  principal: Caller,
): void {
  const template = new ResourceTemplate(`${scheme}{database}/{table}`, {
    list: async ({ mcpReq }) => ({
      resources: await listTables(schema, principal, mcpReq.signal),
    }),
  });
  const description = "The columns of a table with their declared types.";
  const settings = { title: "Table schema", description, mimeType };
  server.registerResource("table", template, settings, (uri, _names, { mcpReq }) =>
    readTable(schema, principal, uri.href, mcpReq.signal),
  );
}
