import { setTimeout as delay } from "node:timers/promises";
import { EngineRefusal, tooSlow } from "../refusal.ts";
import { ConnectionLost, concernsStatement, isTransient } from "./failures.ts";
import { type ConnectionPool, isSettled } from "./pool.ts";
import type { Session } from "./session.ts";

/** How a transaction sees the others that run beside it. */
export type Mode = "read only" | "read committed" | "snapshot, read only" | "serializable";

const beginnings: Record<Mode, string> = {
  "read only": "begin read only",
  "read committed": "begin isolation level read committed",
  "snapshot, read only": "begin isolation level repeatable read, read only",
  serializable: "begin isolation level serializable",
};

/** How often a transaction that has lost against another one is run again at the most. */
const attemptLimit = 5;

/** How long the first pause before another attempt is at the most, in milliseconds. */
const firstPause = 10;

/** How often a connection is asked for that turns out to have been closed by the server. */
const connectionLimit = 3;

/** A server that hears nothing of us for so long gives the transaction up, in milliseconds. */
const idleLimit = 60_000;

/**
 * Runs `work` as one transaction: all of it is durable when this resolves, and none of it stays
 * when it rejects. It is run again if it lost against another transaction, and only then, so
 * nothing is done twice.
 *
 * Throws `query_timeout` after `timeLimit` milliseconds over all attempts, the reason of `signal`,
 * `database_unavailable` if nobody can say whether it was committed, or what the work throws.
 */
export async function transaction<Result>(
  pool: ConnectionPool,
  options: { mode: Mode; timeLimit: number; signal: AbortSignal },
  work: (session: Session) => Promise<Result>,
): Promise<Result> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(tooSlow(options.timeLimit)), options.timeLimit);
  const signal = AbortSignal.any([options.signal, limit.signal]);
  try {
    const run = () => runOnce(pool, { ...options, signal }, work);
    return await run().catch((error) => {
      if (!isTransient(error)) throw error;
      return pool.again.hold(signal, () => runAgain(run));
    });
  } finally {
    clearTimeout(timer);
  }
}

/** Runs what has lost once, a few times at the most, each after a longer pause. */
async function runAgain<Result>(run: () => Promise<Result>): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await run();
    } catch (error) {
      if (!isTransient(error) || attempt === attemptLimit) throw error;
    }
    await delay(Math.random() * firstPause * 2 ** attempt);
  }
}

async function runOnce<Result>(
  pool: ConnectionPool,
  { mode, timeLimit, signal }: { mode: Mode; timeLimit: number; signal: AbortSignal },
  work: (session: Session) => Promise<Result>,
): Promise<Result> {
  const beginning = [beginnings[mode], ...settings(timeLimit)].join("; ");
  for (let attempt = 1; ; attempt += 1) {
    let isBegun = false;
    try {
      return await pool.lend(signal, async (session) => {
        await session.command(beginning);
        isBegun = true;
        return await finish(session, mode, work);
      });
    } catch (error) {
      // The server may have closed the connection while it was idle: then nothing was done.
      const isStale = error instanceof ConnectionLost && !isBegun;
      if (!isStale || attempt === connectionLimit) throw error;
    }
  }
}

/**
 * Said in each transaction, and not to the connection, since that may lead through a pooler to
 * another server process each time.
 */
function settings(timeLimit: number): string[] {
  return [
    `set local statement_timeout = ${timeLimit}`,
    `set local idle_in_transaction_session_timeout = ${idleLimit}`,
    "set local timezone = 'UTC'",
    "set local datestyle = 'ISO, YMD'",
    "set local bytea_output = 'hex'",
    "set local extra_float_digits = 3",
  ];
}

async function finish<Result>(
  session: Session,
  mode: Mode,
  work: (session: Session) => Promise<Result>,
): Promise<Result> {
  let result: Result;
  try {
    result = await work(session);
  } catch (error) {
    if (isSettled(error)) await session.command("rollback");
    throw error;
  }
  try {
    await session.command("commit");
  } catch (error) {
    const isAnswer = concernsStatement(error) || isTransient(error);
    throw isAnswer || mode.endsWith("read only") ? error : unknownOutcome();
  }
  return result;
}

function unknownOutcome(): EngineRefusal {
  return new EngineRefusal(
    "database_unavailable",
    "The connection to the database was lost at the end of the query; whether it was carried out is not known",
  );
}
