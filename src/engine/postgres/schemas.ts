import { sql } from "kysely";
import { EngineRefusal } from "../refusal.ts";
import { foldCase } from "../sql/names.ts";
import type { Layout, Location } from "./layout.ts";
import type { ConnectionPool } from "./pool.ts";
import type { Session } from "./session.ts";
import { databaseNotFound } from "./tables.ts";
import { transaction } from "./transaction.ts";

/** A database of queries is a schema of one PostgreSQL database, so that a Batch spans several. */
export class SchemaLayout implements Layout {
  readonly #pool: ConnectionPool;
  readonly #timeLimit: number;

  constructor(pool: ConnectionPool, timeLimit: number) {
    this.#pool = pool;
    this.#timeLimit = timeLimit;
  }

  locate(databases: readonly string[]): Location {
    const hidden = databases.find(isReserved);
    if (hidden !== undefined) throw databaseNotFound(hidden);
    return { pool: this.#pool, schemaOf: (database) => database };
  }

  async list(signal: AbortSignal): Promise<string[]> {
    return transaction(this.#pool, this.#options("read only", signal), async (session) => {
      const found = await session.rows(sql`select nspname from pg_catalog.pg_namespace`);
      return found.map(([name]) => name ?? "").filter((name) => !isReserved(name));
    });
  }

  async create(database: string, signal: AbortSignal): Promise<void> {
    if (isReserved(database)) {
      throw new EngineRefusal("invalid_name", `PostgreSQL keeps the name ${database} for itself`);
    }
    await transaction(this.#pool, this.#options("read committed", signal), async (session) => {
      await requireFree(session, database);
      await session.run(sql`create schema ${sql.id(database)}`);
    });
  }

  async drop(database: string, signal: AbortSignal): Promise<void> {
    if (isReserved(database)) throw databaseNotFound(database);
    await transaction(this.#pool, this.#options("read committed", signal), (session) =>
      dropSchema(session, database),
    );
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }

  #options<Mode>(mode: Mode, signal: AbortSignal) {
    return { mode, timeLimit: this.#timeLimit, signal };
  }
}

/** The schemas of the server's own. */
function isReserved(name: string): boolean {
  const folded = foldCase(name);
  return folded.startsWith("pg_") || ["information_schema", "crdb_internal"].includes(folded);
}

async function requireFree(session: Session, database: string): Promise<void> {
  const [[taken] = []] = await session.rows(
    sql`select nspname from pg_catalog.pg_namespace
      where pg_catalog.lower(nspname) = pg_catalog.lower(${database})`,
  );
  if (taken == null) return;
  throw new EngineRefusal("database_exists", `Database ${taken} exists already`);
}

/**
 * Never with `cascade`, which would reach into other schemas: what stands there and needs what is
 * here makes the server refuse.
 */
async function dropSchema(session: Session, database: string): Promise<void> {
  const found = await session.rows(
    sql`select class.relname from pg_catalog.pg_namespace as namespace
      left join pg_catalog.pg_class as class
        on class.relnamespace = namespace.oid and class.relkind in ('r', 'p')
        and not exists (select 1 from pg_catalog.pg_inherits where inhrelid = class.oid)
      where namespace.nspname = ${database}`,
  );
  if (found.length === 0) throw databaseNotFound(database);
  const tables = found.flatMap(([table]) => (table == null ? [] : [sql.id(database, table)]));
  if (tables.length > 0) await session.run(sql`drop table ${sql.join(tables)}`);
  await session.run(sql`drop schema ${sql.id(database)}`);
}
