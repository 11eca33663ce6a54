import * as z from "zod";
import {
  type ActivityStorage,
  joinActivity,
  type LastActivity,
  RETENTION_SECONDS,
} from "../../core/observe/activity.ts";
import { type Database, SHORT_TIMEOUT_MS } from "./database.ts";

const BATCH = 1000;
const writeSql = `insert into gatehouse.activity as a (key, login, use)
  select key, login, use from unnest($1::text[], $2::bigint[], $3::bigint[]) as given (key, login, use)
    order by key
  on conflict (key) do update
    set login = greatest(a.login, excluded.login), use = greatest(a.use, excluded.use)`;
const deleteSql = `delete from gatehouse.activity
  where use < extract(epoch from clock_timestamp()) - ${RETENTION_SECONDS}`;

/** The activity of all replicas. Each process writes what has changed since its last write. */
export function activityTable(database: Database): ActivityStorage {
  const { query } = database;
  const written = new Map<string, LastActivity>();

  return {
    load: () => [],
    readAll: () => readEntries(database),
    async write(known) {
      const changed = [...known].filter(([key, { login, use }]) => {
        const before = written.get(key);
        return before?.login !== login || before.use !== use;
      });
      for (let at = 0; at < changed.length; at += BATCH) {
        const batch = changed.slice(at, at + BATCH);
        const columns = [
          batch.map(([key]) => key),
          batch.map(([, { login }]) => login),
          batch.map(([, { use }]) => use),
        ];
        await query(writeSql, columns, SHORT_TIMEOUT_MS);
        for (const [key, { login, use }] of batch) written.set(key, { login, use });
      }
      await query(deleteSql, [], SHORT_TIMEOUT_MS);
    },
  };
}

const rowShape = z
  .object({ key: z.string(), login: z.int(), use: z.int() })
  .transform(({ key, ...activity }) => [key, activity] as const);

async function readEntries({ query }: Database) {
  const rows = await query("select key, login, use from gatehouse.activity");
  return rows.map((row) => rowShape.parse(row));
}

export async function readActivity(database: Database) {
  return joinActivity(await readEntries(database));
}
