import * as z from "zod";
import { type Database, SHORT_TIMEOUT_MS, storeUnreachable } from "../store/database.ts";
import type { Replica } from "../store/replica.ts";
import { IDLE_MS, LONGEST_MS, type Session, type SessionStore } from "./sessions.ts";

const alive = `used > clock_timestamp() - interval '${IDLE_MS} ms'
  and started > clock_timestamp() - interval '${LONGEST_MS} ms'`;

const columns = `username, token_id as "tokenId", address, user_agent as "userAgent", credential,
  issued as "issuedAt", version,
  (extract(epoch from clock_timestamp() - started) * 1000)::float8 as started,
  (extract(epoch from clock_timestamp() - used) * 1000)::float8 as used`;

const addSql = `insert into gatehouse.console_sessions
  (key, username, token_id, address, user_agent, credential, issued, version, started, used)
  values ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(), clock_timestamp())`;
const useSql = `update gatehouse.console_sessions set used = clock_timestamp()
  where key = $1 and ${alive} returning ${columns}`;
const peekSql = `select ${columns} from gatehouse.console_sessions where key = $1 and ${alive}`;
const listSql = `select ${columns} from gatehouse.console_sessions
  where ($1::text is null or username = $1) and ${alive}`;
const endSql = "delete from gatehouse.console_sessions where token_id = $1";
const sweepSql = `delete from gatehouse.console_sessions where key in (
  select key from gatehouse.console_sessions where not (${alive}) limit 1000 for update skip locked)`;

/** The store returns times as ages. */
const rowShape = z.object({
  username: z.string(),
  tokenId: z.string(),
  address: z.string(),
  userAgent: z.string(),
  credential: z.string(),
  issuedAt: z.int(),
  version: z.int(),
  started: z.number(),
  used: z.number(),
});

export function sessionsInStore({ query }: Database, replica: Replica): SessionStore {
  async function ask(sql: string, ...values: unknown[]) {
    await replica.requireReachable();
    return query(sql, values, SHORT_TIMEOUT_MS);
  }

  /** Returns the sessions once this replica has applied the versions known when they began. */
  async function readAll(rows: readonly unknown[]): Promise<Session[]> {
    const known = rows.map((row) => rowShape.parse(row));
    const newest = known.reduce((most, { version }) => Math.max(most, version), 0);
    if (newest > replica.appliedVersion) await replica.poll();
    if (newest > replica.appliedVersion) throw storeUnreachable();
    const now = performance.now();
    return known.map(({ version: _, started, used, ...session }) => {
      return { ...session, startedAt: now - started, usedAt: now - used };
    });
  }

  return {
    async add(key, { username, tokenId, address, userAgent, credential, issuedAt }) {
      const { appliedVersion } = replica;
      const session = [key, username, tokenId, address, userAgent, credential, issuedAt];
      await ask(addSql, ...session, appliedVersion);
      await ask(sweepSql);
    },
    async use(key, isPassive) {
      const [session] = await readAll(await ask(isPassive ? peekSql : useSql, key));
      return session;
    },
    list: async (username) => readAll(await ask(listSql, username ?? null)),
    async end(tokenId) {
      await ask(endSql, tokenId);
    },
  };
}
