import { EngineRefusal } from "../refusal.ts";
import { refused } from "./failures.ts";

const FRESH_TIME_MS = 1000;

const TABLE_LIMIT = 1000;

/** A table has changed since it was read. Nothing was answered from the old description. */
export class OutdatedTable extends EngineRefusal {
  constructor() {
    super(...refused.inUse);
    this.name = "OutdatedTable";
  }

  /** The query is retried, so the error needs no place. */
  override at(): this {
    return this;
  }
}

/**
 * Caches the tables of one server, so that not every query reads its catalog. An entry is dropped
 * after a second, when this engine changes a table, and when a query fails because of it.
 */
export class KnownTables<Table> {
  /** Counts how often prepared statements were found to be outdated. */
  plans = 0;
  readonly #tables = new Map<string, { readonly table: Table; readonly readAt: number }>();

  find(database: string, name: string): Table | undefined {
    const known = this.#tables.get(tableKey(database, name));
    if (known === undefined || performance.now() - known.readAt > FRESH_TIME_MS) return undefined;
    return known.table;
  }

  keep(database: string, name: string, table: Table): void {
    if (this.#tables.size >= TABLE_LIMIT) this.forget();
    this.#tables.set(tableKey(database, name), { table, readAt: performance.now() });
  }

  forget(): void {
    this.#tables.clear();
  }

  /** Drops all tables and their prepared statements. */
  outdatePlans(): void {
    this.forget();
    this.plans += 1;
  }
}

function tableKey(database: string, name: string): string {
  return `${database}\0${name}`;
}
