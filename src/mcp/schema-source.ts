import { type Dispatcher, Pool } from "undici";
import { z } from "zod";
import { Refusal } from "../refusal.ts";
import { asRefusal } from "../upstream/failure.ts";
import type { UpstreamTarget } from "../upstream/target.ts";
import type { Principal } from "./principal.ts";

const column = z.object({
  name: z.string(),
  type: z.string(),
  primary_key: z.boolean(),
  nullable: z.boolean(),
});
const databaseList = z.object({ data: z.object({ databases: z.array(z.string()) }) });
const tableList = z.object({ data: z.object({ tables: z.array(z.string()) }) });
const columnList = z.object({ data: z.object({ columns: z.array(column) }) });

/** A column as its table declares it. */
export type SchemaColumn = Readonly<z.output<typeof column>>;

/**
 * What databases, tables and columns there are, as far as a caller may see them.
 *
 * Every method throws a Refusal: `no_grant` for a database that the caller may not read, whether
 * or not it is there; `schema_not_found` for what is not there; and those of the upstream.
 */
export interface SchemaSource {
  listDatabases(principal: Principal): Promise<string[]>;
  listTables(principal: Principal, database: string): Promise<string[]>;
  describeTable(principal: Principal, database: string, table: string): Promise<SchemaColumn[]>;
  close(): Promise<void>;
}

export interface SchemaSourceOptions {
  /** A process that answers `GET /schema`, as the engine does. */
  readonly target: UpstreamTarget;
  /** The `Authorization` header that it asks for, if any. */
  readonly authorization?: string | undefined;
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** Milliseconds. */
  readonly responseTimeout: number;
  /** True if the caller may read the database. */
  readonly maySee: (principal: Principal, database: string) => boolean;
}

const CONNECTIONS = 4;
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;

function createPool({ target, connectTimeout, responseTimeout }: SchemaSourceOptions): Pool {
  return new Pool(target.origin, {
    connections: CONNECTIONS,
    connect: { timeout: connectTimeout },
    headersTimeout: responseTimeout,
    bodyTimeout: responseTimeout,
    ...(target.socketPath === undefined ? {} : { socketPath: target.socketPath }),
  });
}

/** Reads the body, up to a bound. */
async function readText(body: Dispatcher.ResponseData["body"]): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    const bytes = Buffer.from(chunk);
    length += bytes.length;
    if (length > LARGEST_ANSWER_BYTES) throw new Refusal("upstream_broken");
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function parse<Schema extends z.ZodType>(schema: Schema, text: string): z.output<Schema> {
  try {
    return schema.parse(JSON.parse(text));
  } catch (cause) {
    throw new Refusal("upstream_broken", { detail: "no schema in the answer", cause });
  }
}

/** Opens a source over undici; nothing is connected until it is needed. */
export function createSchemaSource(options: SchemaSourceOptions): SchemaSource {
  const { authorization, maySee } = options;
  const pool = createPool(options);

  async function get(...segments: string[]): Promise<string> {
    const path = ["/schema", ...segments.map(encodeURIComponent)].join("/");
    const headers = authorization === undefined ? {} : { authorization };
    let answer: Dispatcher.ResponseData;
    let text: string;
    try {
      answer = await pool.request({ path, method: "GET", headers });
      text = await readText(answer.body);
    } catch (error) {
      throw asRefusal(error instanceof Error ? error : new Error("unknown"));
    }
    if (answer.statusCode === 404 || answer.statusCode === 400)
      throw new Refusal("schema_not_found");
    if (answer.statusCode === 200) return text;
    throw new Refusal("upstream_broken", { detail: `schema: status ${answer.statusCode}` });
  }

  function requireSeen(principal: Principal, database: string): void {
    if (!maySee(principal, database)) throw new Refusal("no_grant");
  }

  return {
    async listDatabases(principal) {
      const { data } = parse(databaseList, await get());
      return data.databases.filter((database) => maySee(principal, database));
    },
    async listTables(principal, database) {
      requireSeen(principal, database);
      return parse(tableList, await get(database)).data.tables;
    },
    async describeTable(principal, database, table) {
      requireSeen(principal, database);
      return parse(columnList, await get(database, table)).data.columns;
    },
    async close() {
      await pool.destroy();
    },
  };
}
