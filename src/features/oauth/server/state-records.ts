import * as z from "zod";
import { epochSeconds } from "../../../core/base/clock.ts";
import type { NewRecord, RecordStore } from "./state-store.ts";

type Row = Readonly<Record<string, unknown>>;
type Value = string | number | null;
/** Runs a statement with values for `$1` and so on. */
type RunQuery = (sql: string, values: readonly Value[]) => Promise<readonly Row[]>;

/** A table of records in SQLite or PostgreSQL. */
interface RecordTable {
  readonly name: string;
  /** SQL for the time by which records expire, a second, and the seconds since a time. */
  readonly now: string;
  readonly second: string;
  since(time: string): string;
  /** SQL after the condition by which rows are selected for deletion. */
  readonly lock: string;
  /** The columns that contain a payload. */
  readonly columns: readonly string[];
  write(model: string, key: string, payload: string): readonly Value[];
  read(row: Row): string;
  /** How an id is stored. */
  keyOf(id: string): string;
  readonly query: RunQuery;
}

interface Records extends RecordStore {
  /** Inserts a record unless there is one of this id. */
  insertMissing(model: string, id: string, record: NewRecord): Promise<void>;
  /** Removes a grant with its records. False if there were none. */
  removeGrant(grantId: string, query?: RunQuery): Promise<boolean>;
}

const DAY = 24 * 3600;

const countShape = z.object({ unused: z.int(), every: z.int() });
const ageShape = z.object({ age: z.number().nullable() });

/** Keeps records in a table. */
export function recordsIn(table: RecordTable): Records {
  const { name, now, second, since, lock, columns, keyOf, query } = table;
  const content = columns.join(", ");
  const after = (seconds: string) => `${now} + ${seconds} * ${second}`;
  const replacement = ["grant_id", "uid", "expires", ...columns]
    .map((column) => `${column} = excluded.${column}`)
    .join(", ");

  /** @param action if there is a record of this id */
  function insert(model: string, id: string, record: NewRecord, action: string) {
    const { payload, grantId, uid, expires } = record;
    const key = keyOf(id);
    const values = [
      model,
      key,
      grantId === undefined ? null : keyOf(grantId),
      uid === undefined ? null : keyOf(uid),
      expires - epochSeconds(),
      ...table.write(model, key, payload),
    ];
    const sql = `insert into ${name} as r (model, id, grant_id, uid, expires, ${content})
      values ($1, $2, $3, $4, ${after("$5")}, ${columns.map((_, at) => `$${at + 6}`)})
      on conflict (model, id) do ${action}`;
    return query(sql, values);
  }

  async function find(column: "id" | "uid", model: string, value: string) {
    const sql = `select model, id, ${content}, ${since("consumed")} as age from ${name}
      where ${column} = $1 and model = $2 and expires > ${now} limit 1`;
    const [row] = await query(sql, [keyOf(value), model]);
    if (row === undefined) return undefined;
    const { age } = ageShape.parse(row);
    // By this process's clock, from the time that has passed by the storage's clock.
    const consumed = age === null ? undefined : epochSeconds() - Math.ceil(age);
    return { payload: table.read(row), consumed };
  }

  /** Locks the rows in one order, so that two processes that delete the same cannot deadlock. */
  function removeWhere(condition: string, values: readonly string[], run = query) {
    const sql = `delete from ${name} where (model, id) in
      (select model, id from ${name} where ${condition} ${lock}) returning id`;
    return run(sql, values);
  }

  return {
    async put(model, id, record) {
      await insert(model, id, record, `update set ${replacement}`);
    },
    async insertMissing(model, id, record) {
      await insert(model, id, record, "nothing");
    },
    async claim(model, id, expires) {
      const action = `update set expires = excluded.expires where r.expires <= ${now} returning id`;
      return (await insert(model, id, { payload: "{}", expires }, action)).length === 1;
    },
    find: (model, id) => find("id", model, id),
    findByUid: (model, uid) => find("uid", model, uid),
    async consume(model, id, reuse = -1) {
      const sql = `update ${name} set consumed = coalesce(consumed, ${now})
        where model = $1 and id = $2 and expires > ${now}
          and (consumed is null or abs(${since("consumed")}) <= $3) returning id`;
      return (await query(sql, [model, keyOf(id), reuse])).length === 1;
    },
    async remove(model, id) {
      await removeWhere("model = $1 and id = $2", [model, keyOf(id)]);
    },
    async removeByGrant(model, grantId) {
      await removeWhere("model = $1 and grant_id = $2", [model, keyOf(grantId)]);
    },
    async removeGrant(grantId, run) {
      const condition = "grant_id = $1 or (model = 'Grant' and id = $1)";
      return (await removeWhere(condition, [keyOf(grantId)], run)).length > 0;
    },
    // Written at most once a day, since a client in use gets tokens all the time.
    async keepClient(id, expires) {
      const sql = `update ${name} set uid = null,
          expires = case when expires < ${after("$2")} then ${after("$2")} else expires end
        where model = 'Client' and id = $1
          and (uid is not null or expires < ${after("$3")})`;
      const seconds = expires - epochSeconds();
      await query(sql, [keyOf(id), seconds, seconds - DAY]);
    },
    // Clients that no user has allowed yet have their address as uid.
    async makeRoom(bounds) {
      const count = `select count(uid) as unused, count(*) as every from ${name}
        where model = 'Client' and expires > ${now}`;
      const [row] = await query(count, []);
      const { unused, every } = countShape.parse(row);
      const forget = (which: string) => {
        const sql = `delete from ${name} where model = 'Client' and id = (
          select id from ${name} where model = 'Client' and ${which}
          order by count(*) over (partition by uid) desc, expires limit 1)`;
        return query(sql, []);
      };
      if (unused >= bounds.unused) await forget("uid is not null");
      if (every - unused >= bounds.used) await forget("uid is null");
    },
  };
}
