import { EngineRefusal } from "../refusal.ts";
import { refused } from "./failures.ts";

/** How long what was read of a table counts, in milliseconds. */
const FRESH_TIME_MS = 1000;

/** Tables that are remembered at the most. */
const TABLE_LIMIT = 1000;

/** A table is not what it was when it was read: nothing was answered by it. */
export class OutdatedTable extends EngineRefusal {
  constructor() {
    super(...refused.inUse);
    this.name = "OutdatedTable";
  }

  /** It is about no place: the query is run again. */
  override at(): this {
    return this;
  }
}

/**
 * What tables of one server looked like a moment ago, so that not every query reads its catalog. It is
 * forgotten after a second, when this engine has changed a table, and when a query fails by it.
 */
export class KnownTables<Table> {
  /** How often plans were outdated. */
  #outdated = 0;
  readonly #tables = new Map<string, { readonly table: Table; readonly readAt: number }>();

  find(database: string, name: string): Table | undefined {
    const known = this.#tables.get(keyOf(database, name));
    if (known === undefined || performance.now() - known.readAt > FRESH_TIME_MS) return undefined;
    return known.table;
  }

  keep(database: string, name: string, table: Table): void {
    if (this.#tables.size >= TABLE_LIMIT) this.forget();
    this.#tables.set(keyOf(database, name), { table, readAt: performance.now() });
  }

  forget(): void {
    this.#tables.clear();
  }

  /** Forgets all of them, and what statements were prepared by. */
  outdatePlans(): void {
    this.forget();
    this.#outdated += 1;
  }

  /** Returns what tells whether plans were outdated since it was asked last. */
  watchPlans(): () => boolean {
    let seen = this.#outdated;
    return () => {
      const isOutdated = seen !== this.#outdated;
      seen = this.#outdated;
      return isOutdated;
    };
  }
}

function keyOf(database: string, name: string): string {
  return `${database}\0${name}`;
}
