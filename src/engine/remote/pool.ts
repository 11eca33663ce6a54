import type { Connection } from "./session.ts";

/** How long a connection is kept without work, in milliseconds. */
const IDLE_TIMEOUT_MS = 30_000;

/** Where the connections of a pool come from. */
export interface ConnectionSource<Leased> {
  /**
   * Where a connection has to lead for a query on `database`, or for what is about no database.
   * One that leads to all of them is always at the same place.
   *
   * @throws EngineRefusal `database_not_found` for a database that no query can name
   */
  targetOf(database: string | undefined): string;
  /** @throws ConnectionLost, or the server's error if it refuses the connection */
  open(target: string): Promise<Connection<Leased>>;
}

/** A connection that has no work. */
interface Idle {
  readonly target: string;
  /** Ends it. */
  readonly timer: NodeJS.Timeout;
}

/** The connections to one server, those to each of its databases apart. */
export class ConnectionPool<Leased> {
  readonly #source: ConnectionSource<Leased>;
  readonly #limit: number;
  /** Those that are taken out, with where they lead. */
  readonly #leased = new Map<Connection<Leased>, string>();
  /** Those without work; who has had none for the longest comes first. */
  readonly #idle = new Map<Connection<Leased>, Idle>();
  readonly #ending = new Set<Promise<void>>();
  /** Where no connection is kept without work. */
  readonly #unwanted = new Set<string>();
  #opening = 0;
  #isClosed = false;

  /** Opens no connection yet, and never more than `limit`, if no more are taken out at a time. */
  constructor(source: ConnectionSource<Leased>, limit: number) {
    this.#source = source;
    this.#limit = limit;
  }

  /**
   * Takes out a connection on which a database can be reached, or makes one, in the place of one
   * without work if there are as many as there may be. With `isFresh` it makes one in any case.
   *
   * @throws what the source throws
   */
  async connect(database: string | undefined, isFresh = false): Promise<Connection<Leased>> {
    const target = this.#source.targetOf(database);
    const idle = isFresh ? undefined : this.#takeIdle(target);
    if (idle === undefined) return this.#open(target);
    this.#leased.set(idle, target);
    return idle;
  }

  /** Puts a connection back, or breaks it. */
  release(connection: Connection<Leased>, isBroken: boolean): void {
    const target = this.#leased.get(connection);
    this.#leased.delete(connection);
    if (isBroken) connection.cut();
    else if (target !== undefined && connection.isUsable) this.#keep(connection, target);
  }

  /** Does the work while no connection is kept to a database: one in use is ended once put back. */
  async without<Result>(database: string, work: () => Promise<Result>): Promise<Result> {
    const target = this.#source.targetOf(database);
    this.#unwanted.add(target);
    try {
      const idle = [...this.#idle].filter(([, { target: itsOwn }]) => itsOwn === target);
      await Promise.all(idle.map(([connection]) => this.#end(connection)));
      return await work();
    } finally {
      this.#unwanted.delete(target);
    }
  }

  /** Closes the connections; those that are taken out, once they are put back. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#idle.keys()].map((connection) => this.#end(connection)));
  }

  /** The last one that was put back is the first to be taken. */
  #takeIdle(target: string): Connection<Leased> | undefined {
    for (const [connection, idle] of [...this.#idle].reverse()) {
      if (connection.isUsable && idle.target !== target) continue;
      this.#forget(connection);
      if (connection.isUsable) return connection;
    }
    return undefined;
  }

  async #open(target: string): Promise<Connection<Leased>> {
    while (this.#count >= this.#limit) await this.#nextEnd();
    this.#opening += 1;
    try {
      const connection = await this.#source.open(target);
      this.#leased.set(connection, target);
      return connection;
    } finally {
      this.#opening -= 1;
    }
  }

  /** There is one without work, or on its way out, as long as not all that there may be are leased. */
  async #nextEnd(): Promise<void> {
    const [oldest] = this.#idle.keys();
    await (oldest === undefined ? Promise.race(this.#ending) : this.#end(oldest));
  }

  get #count(): number {
    return this.#leased.size + this.#opening + this.#idle.size + this.#ending.size;
  }

  #keep(connection: Connection<Leased>, target: string): void {
    const timer = setTimeout(() => void this.#end(connection), IDLE_TIMEOUT_MS).unref();
    this.#idle.set(connection, { target, timer });
    if (this.#isClosed || this.#unwanted.has(target)) void this.#end(connection);
  }

  #forget(connection: Connection<Leased>): void {
    clearTimeout(this.#idle.get(connection)?.timer);
    this.#idle.delete(connection);
  }

  async #end(connection: Connection<Leased>): Promise<void> {
    this.#forget(connection);
    const ending = connection.end();
    this.#ending.add(ending);
    await ending;
    this.#ending.delete(ending);
  }
}
