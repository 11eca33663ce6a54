import type { Connection, Submittable } from "pg";
import { serialize } from "pg-protocol";

/** A statement as the driver takes it, its values PostgreSQL's text. */
export interface Statement {
  readonly text: string;
  readonly values: (string | null)[];
}

/** Statements of our own that go up in front of another one, with the same write. */
export interface Opening {
  readonly bytes: Buffer;
  readonly count: number;
}

const noOpening: Opening = { bytes: Buffer.alloc(0), count: 0 };
const askForTypes = serialize.describe({ type: "P" });
const execution = serialize.execute();
const sync = serialize.sync();

/** An opening of these words, which hold no values. */
export function openingOf(words: readonly string[]): Opening {
  const messages = words.flatMap((text) => [...messagesOf({ text, values: [] }), execution]);
  return { bytes: Buffer.concat(messages), count: words.length };
}

/** Openings whose statements one server process has prepared under names, so that they are planned once. */
export class PreparedOpenings {
  readonly #known = new Map<readonly string[], Opening>();
  #names = 0;
  /** What is on its way to the server. */
  #coming: readonly [words: readonly string[], opening: Opening] | undefined;

  /** The same array of words is the same opening. */
  of(words: readonly string[]): Opening {
    const known = this.#known.get(words);
    if (known !== undefined) return known;
    const named = words.map((text, index) => ({ text, name: `${this.#names + index}` }));
    this.#names += words.length;
    const use = ({ name }: { name: string }) => [serialize.bind({ statement: name }), execution];
    const count = words.length;
    this.#coming = [words, { bytes: Buffer.concat(named.flatMap(use)), count }];
    // A transaction has to begin before anything else is planned.
    const first = named.flatMap((one) => [serialize.parse(one), ...use(one)]);
    return { bytes: Buffer.concat(first), count };
  }

  /** Tells whether what went up last was carried out: else nobody knows how far it came. */
  settle(isDone: boolean): void {
    if (this.#coming !== undefined && isDone) this.#known.set(...this.#coming);
    this.#coming = undefined;
  }
}

function messagesOf({ text, values }: Statement): Buffer[] {
  return [serialize.parse({ text }), serialize.bind({ values })];
}

/**
 * A statement and what opens it, sent at once. The server skips what stands behind a statement that
 * fails, and ends the transaction with them where none was begun (PostgreSQL, "Extended Query").
 */
export class Exchange implements Submittable {
  /** Resolves at the end. Rejects with the server's error, or that of the connection. */
  readonly done: Promise<void>;
  readonly #statement: Statement;
  readonly #bytesAhead: Buffer;
  readonly #ending = Promise.withResolvers<void>();
  /** Statements in front that the server has not carried out. */
  #ahead: number;
  #tag = "";

  constructor(statement: Statement, { bytes, count }: Opening = noOpening) {
    this.#statement = statement;
    this.#bytesAhead = bytes;
    this.#ahead = count;
    this.done = this.#ending.promise;
  }

  /** True once what the server answers is about the statement. */
  protected get isReached(): boolean {
    return this.#ahead === 0;
  }

  /** How many rows it changed. */
  get count(): number {
    return Number(/\d+$/.exec(this.#tag)?.[0] ?? 0);
  }

  /** Called by the driver when it is this statement's turn, as are those below. */
  submit({ stream }: Connection): void {
    const messages = messagesOf(this.#statement);
    stream.write(Buffer.concat([this.#bytesAhead, ...messages, askForTypes, execution, sync]));
  }

  handleRowDescription(_message: unknown): void {}

  handleCommandComplete({ text }: { readonly text: string }): void {
    if (this.isReached) this.#tag = text;
    else this.#ahead -= 1;
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
