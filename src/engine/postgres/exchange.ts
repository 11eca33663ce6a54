import type { Connection, Submittable } from "pg";
import { serialize } from "pg-protocol";
import type { ResultColumn } from "./row-bytes.ts";

/** A statement as the driver takes it, its values PostgreSQL's text. */
export interface Statement {
  readonly text: string;
  readonly values: (string | null)[];
}

/** A statement that a server process knows by a name. */
interface Prepared {
  readonly text: string;
  readonly name: string;
  /** What carries it out without values, once that was said. */
  bound?: Buffer;
  /** The columns of its rows, once they were told: the server refuses it if they are others by now. */
  columns?: readonly ResultColumn[];
}

/** Statements that one connection has prepared at the most, and the longest of them. */
const PREPARED_LIMIT = 100;
const LONGEST_PREPARED = 4096;

/**
 * Statements that one server process has prepared under names, so that each is parsed and planned once.
 */
export class PreparedStatements {
  readonly #known = new Map<string, Prepared>();
  readonly #areOutdated: () => boolean;
  #names = 0;
  /** What is on its way to the server, and what the server is to forget. */
  #coming: Prepared[] = [];
  #unwanted: Prepared[] = [];

  /** `areOutdated` tells whether a table has changed since it was asked last. */
  constructor(areOutdated: () => boolean) {
    this.#areOutdated = areOutdated;
  }

  /** What goes up ahead of everything else: the names that the server is to forget. */
  takeUnwanted(): Buffer[] {
    if (this.#areOutdated()) {
      this.#unwanted.push(...this.#known.values());
      this.#known.clear();
    }
    const closed = this.#unwanted.map(({ name }) => serialize.close({ type: "S", name }));
    this.#unwanted = [];
    return closed;
  }

  find(text: string): Prepared | undefined {
    return this.#known.get(text) ?? this.#coming.find((prepared) => prepared.text === text);
  }

  /** A name for a statement that goes up; undefined for one that is not worth it. */
  add(text: string): Prepared | undefined {
    if (text.length > LONGEST_PREPARED) return undefined;
    this.#names += 1;
    const prepared = { text, name: String(this.#names) };
    this.#coming.push(prepared);
    return prepared;
  }

  /** Tells whether what went up last was carried out: else nobody knows how far it came. */
  settle(isDone: boolean): void {
    if (this.#coming.length === 0) return;
    if (isDone) for (const prepared of this.#coming) this.#known.set(prepared.text, prepared);
    else this.#unwanted.push(...this.#coming);
    this.#coming = [];
    for (const [text, prepared] of this.#known) {
      if (this.#known.size <= PREPARED_LIMIT) break;
      this.#known.delete(text);
      this.#unwanted.push(prepared);
    }
  }
}

const askForTypes = serialize.describe({ type: "P" });
const execution = serialize.execute();
const sync = serialize.sync();

/** Statements that go up together, of which the server skips those behind one that fails. */
export interface Asked {
  /** What begins the transaction. */
  readonly opening: readonly string[];
  readonly statements: readonly Statement[];
  /** Ends the transaction: the end of the exchange does where none was begun. */
  readonly closing?: "commit" | "sync" | undefined;
  /** Where statements are prepared, and how. */
  readonly prepared?: PreparedStatements | undefined;
}

/**
 * Statements with what opens and ends their transaction, sent at once. The server skips what stands behind
 * a statement that fails, and ends the transaction with them where none was begun (PostgreSQL, "Extended
 * Query").
 */
export class Exchange implements Submittable {
  /** Resolves at the end. Rejects with the server's error, or that of the connection. */
  readonly done: Promise<void>;
  readonly #asked: Asked;
  readonly #ending = Promise.withResolvers<void>();
  /** How many statements the server has carried out. */
  #done = 0;
  /** True once it was written to the connection. */
  isSent = false;
  /** How many rows each of the statements has changed that were carried out. */
  readonly counts: number[] = [];
  #described: Prepared | undefined;

  constructor(asked: Asked) {
    this.#asked = asked;
    this.done = this.#ending.promise;
  }

  /** True while what the server answers is about the statements. */
  protected get isReached(): boolean {
    return this.#done >= this.#asked.opening.length && !this.isCarriedOut;
  }

  /** True once the server has carried out the statements, so that a commit behind them may be done too. */
  get isCarriedOut(): boolean {
    return this.counts.length === this.#asked.statements.length;
  }

  /** True if it ends the transaction. */
  get isClosing(): boolean {
    return this.#asked.closing !== undefined;
  }

  /** Called by the driver when it is their turn, as are those below. */
  submit({ stream }: Connection): void {
    const { opening, statements, closing, prepared } = this.#asked;
    const messages = prepared?.takeUnwanted() ?? [];
    for (const text of opening) this.#put(messages, { text, values: [] });
    for (const statement of statements) this.#put(messages, statement, this.wantsTypes);
    if (closing === "commit") this.#put(messages, { text: closing, values: [] });
    messages.push(sync);
    this.isSent = true;
    stream.write(Buffer.concat(messages));
  }

  /** True if the columns of the rows are to be told. */
  protected get wantsTypes(): boolean {
    return false;
  }

  /** The columns of the rows, told before the first of them. */
  protected takeTypes(_columns: readonly ResultColumn[]): void {}

  #put(messages: Buffer[], { text, values }: Statement, wantsTypes = false): void {
    const { prepared } = this.#asked;
    const known = prepared?.find(text);
    const named = known ?? prepared?.add(text);
    if (known === undefined) messages.push(serialize.parse({ text, name: named?.name ?? "" }));
    if (named !== undefined && values.length === 0 && !wantsTypes) {
      named.bound ??= Buffer.concat([serialize.bind({ statement: named.name }), execution]);
      messages.push(named.bound);
      return;
    }
    messages.push(serialize.bind({ statement: named?.name ?? "", values }));
    if (wantsTypes && named?.columns !== undefined) this.takeTypes(named.columns);
    else if (wantsTypes) {
      this.#described = named;
      messages.push(askForTypes);
    }
    messages.push(execution);
  }

  handleRowDescription({ fields }: { readonly fields: readonly ResultColumn[] }): void {
    if (!this.isReached) return;
    if (this.#described !== undefined) this.#described.columns = fields;
    this.takeTypes(fields);
  }

  handleCommandComplete({ text }: { readonly text: string }): void {
    if (this.isReached) this.counts.push(Number(/\d+$/.exec(text)?.[0] ?? 0));
    this.#done += 1;
  }

  handleEmptyQuery(): void {}

  handleReadyForQuery(): void {
    this.#ending.resolve();
  }

  handleError(error: unknown): void {
    this.#ending.reject(error);
  }
}

/** A row, its values PostgreSQL's text, in the order of the columns. */
export type Row = readonly (string | null)[];

/** An exchange whose rows are taken as text. */
export class TextExchange extends Exchange {
  readonly rows: Row[] = [];

  handleDataRow({ fields }: { readonly fields: Row }): void {
    if (this.isReached) this.rows.push(fields);
  }
}
