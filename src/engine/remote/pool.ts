import type { Connection } from "./dialect.ts";

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

/** A connection of the pool. */
interface Member {
  readonly target: string;
  /** Ends it once it has had no work for a while. */
  readonly timer: NodeJS.Timeout;
}

/** The connections to one server, those to each of its databases apart. */
export class ConnectionPool<Leased> {
  readonly #source: ConnectionSource<Leased>;
  readonly #limit: number;
  readonly #members = new Map<Connection<Leased>, Member>();
  /** Those without work; who has had none for the longest comes first. */
  readonly #idle: Connection<Leased>[] = [];
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
   * Takes out a connection without work on which a database can be reached; undefined if there is none.
   * The last one that was put back is the first to be taken. @throws what the source throws
   */
  takeIdle(database: string | undefined): Connection<Leased> | undefined {
    const target = this.#source.targetOf(database);
    for (let at = this.#idle.length - 1; at >= 0; at -= 1) {
      const connection = this.#idle[at];
      if (connection === undefined) continue;
      const { isUsable } = connection;
      if (isUsable && !this.#leadsTo(connection, target)) continue;
      this.#idle.splice(at, 1);
      if (isUsable) return connection;
      this.#forget(connection);
    }
    return undefined;
  }

  /**
   * Makes a connection, in the place of one without work if there are as many as there may be.
   *
   * @throws what the source throws
   */
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

  /** Puts a connection back, or breaks it. */
  release(connection: Connection<Leased>, isBroken: boolean): void {
    if (isBroken || !connection.isUsable) this.#forget(connection);
    else this.#keep(connection);
    if (isBroken) connection.cut();
  }

  /** Does the work while no connection is kept to a database: one in use is ended once put back. */
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

  /** Closes the connections; those that are taken out, once they are put back. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#idle.slice().map((connection) => this.#end(connection)));
  }

  #leadsTo(connection: Connection<Leased>, target: string): boolean {
    return this.#members.get(connection)?.target === target;
  }

  /** There is one without work, or on its way out, as long as not all that there may be are leased. */
  async #nextEnd(): Promise<void> {
    const [oldest] = this.#idle;
    await (oldest === undefined ? Promise.race(this.#ending) : this.#end(oldest));
  }

  get #count(): number {
    return this.#members.size + this.#opening + this.#ending.size;
  }

  #keep(connection: Connection<Leased>): void {
    const { target = "", timer } = this.#members.get(connection) ?? {};
    timer?.refresh();
    this.#idle.push(connection);
    if (this.#isClosed || this.#unwanted.has(target)) void this.#end(connection);
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

/** A concurrency limiter: slots for a limited number of tasks; who finds none waits in turn. */
export class ConcurrencyLimiter {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(count: number) {
    this.#free = count;
  }

  /** Does the work in a slot. @throws the reason of `signal` if that is aborted while it waits */
  async hold<Result>(signal: AbortSignal, work: () => Promise<Result>): Promise<Result> {
    const turn = this.take(signal);
    if (turn !== undefined) await turn;
    try {
      return await work();
    } finally {
      this.giveBack();
    }
  }

  /**
   * Takes a slot, which is given back once the work in it is done; undefined if there is one at once.
   * @throws as `hold` does
   */
  take(signal: AbortSignal): Promise<void> | undefined {
    signal.throwIfAborted();
    if (this.#free === 0) return this.#wait(signal);
    this.#free -= 1;
    return undefined;
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const leave = (): void => {
      this.#waiting.delete(resolve);
      reject(signal.reason);
    };
    this.#waiting.add(resolve);
    signal.addEventListener("abort", leave);
    try {
      await promise;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  /** Gives a slot to who waits first. */
  giveBack(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
