import type { Connection } from "./dialect.ts";

const IDLE_TIMEOUT_MS = 30_000;

export interface ConnectionSource<Leased> {
  /**
   * Returns what a connection must reach for a query on `database`: always the same if one
   * connection reaches all databases.
   *
   * @throws EngineRefusal `database_not_found` for a database that no query can name
   */
  targetOf(database: string | undefined): string;
  /** @throws ConnectionLost, or the server's error if it refuses the connection */
  open(target: string): Promise<Connection<Leased>>;
}

export class ConnectionPool<Leased> {
  readonly #source: ConnectionSource<Leased>;
  readonly #limit: number;
  readonly #members = new Map<Connection<Leased>, { target: string; timer: NodeJS.Timeout }>();
  /** Longest idle first. */
  readonly #idle: Connection<Leased>[] = [];
  readonly #ending = new Set<Promise<void>>();
  /** Targets to which no idle connection is kept. */
  readonly #unwanted = new Set<string>();
  #opening = 0;
  #isClosed = false;

  /** Callers lease at most `limit` connections at a time. */
  constructor(source: ConnectionSource<Leased>, limit: number) {
    this.#source = source;
    this.#limit = limit;
  }

  takeIdle(database: string | undefined): Connection<Leased> | undefined {
    const target = this.#source.targetOf(database);
    for (let at = this.#idle.length - 1; at >= 0; at -= 1) {
      const connection = this.#idle[at];
      if (connection === undefined) continue;
      if (!connection.isUsable) void this.#end(connection);
      else if (this.#leadsTo(connection, target)) {
        this.#idle.splice(at, 1);
        return connection;
      }
    }
    return undefined;
  }

  async open(database: string | undefined): Promise<Connection<Leased>> {
    const target = this.#source.targetOf(database);
    while (this.#count >= this.#limit) await this.#nextEnd();
    this.#opening += 1;
    try {
      const connection = await this.#source.open(target);
      const end = () => this.#idle.includes(connection) && this.#end(connection);
      this.#members.set(connection, { target, timer: setTimeout(end, IDLE_TIMEOUT_MS).unref() });
      return connection;
    } finally {
      this.#opening -= 1;
    }
  }

  release(connection: Connection<Leased>, isBroken: boolean): void {
    if (isBroken) {
      this.#forget(connection);
      connection.cut();
      return;
    }
    const { target = "", timer } = this.#members.get(connection) ?? {};
    timer?.refresh();
    this.#idle.push(connection);
    const isUnwanted = this.#isClosed || this.#unwanted.has(target);
    if (isUnwanted || !connection.isUsable) void this.#end(connection);
  }

  /** Runs `work` while no idle connection to a database is kept. */
  async without<Result>(database: string, work: () => Promise<Result>): Promise<Result> {
    const target = this.#source.targetOf(database);
    this.#unwanted.add(target);
    try {
      const idle = this.#idle.filter((connection) => this.#leadsTo(connection, target));
      await Promise.all(idle.map((connection) => this.#end(connection)));
      return await work();
    } finally {
      this.#unwanted.delete(target);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#idle.slice().map((connection) => this.#end(connection)));
  }

  #leadsTo(connection: Connection<Leased>, target: string): boolean {
    return this.#members.get(connection)?.target === target;
  }

  /** While fewer than the limit are leased, there is always an idle or a closing connection. */
  async #nextEnd(): Promise<void> {
    const [oldest] = this.#idle;
    await (oldest === undefined ? Promise.race(this.#ending) : this.#end(oldest));
  }

  get #count(): number {
    return this.#members.size + this.#opening + this.#ending.size;
  }

  #forget(connection: Connection<Leased>): void {
    clearTimeout(this.#members.get(connection)?.timer);
    this.#members.delete(connection);
  }

  async #end(connection: Connection<Leased>): Promise<void> {
    this.#idle.splice(this.#idle.indexOf(connection), 1);
    this.#forget(connection);
    const ending = connection.end();
    this.#ending.add(ending);
    await ending;
    this.#ending.delete(ending);
  }
}
