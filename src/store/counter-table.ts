import * as z from "zod";

/** Rows that one statement writes, or sweeps away, at most. */
export const BATCH = 1000;

/**
 * Adds what was counted here, forgets what has no points, and reads what all have counted. Rows are
 * locked in the order of their keys, so that two replicas do not wait for each other.
 */
export const countSql = `
  with given as (
    select * from unnest($1::text[], $2::text[], $3::int[], $4::float8[]) as g (name, key, points, ms)
  ),
  written as (
    insert into gatehouse.counters as c (name, key, count, ends, changed)
    select name, key, points, clock_timestamp() + ms * interval '1 ms', clock_timestamp()
      from given where points is not null order by name, key
    on conflict (name, key) do update set
      count = excluded.count + case when c.ends > clock_timestamp() then c.count else 0 end,
      ends = case when c.ends > clock_timestamp() then c.ends else excluded.ends end,
      changed = clock_timestamp()
    returning name, key, count, ends
  ),
  forgotten as (
    update gatehouse.counters c set count = 0, changed = clock_timestamp() from given g
      where g.points is null and (c.name, c.key) = (g.name, g.key)
  )
  select name, key, count,
    (extract(epoch from ends - clock_timestamp()) * 1000)::float8 as rest
  from (
    select name, key, count, ends from written
    union all
    select name, key, count, ends from gatehouse.counters c
      where changed > clock_timestamp() - make_interval(secs => $5) and ends > clock_timestamp()
      and not exists (select from given g where (g.name, g.key) = (c.name, c.key))
  ) counted`;

/** Takes out windows that are over. */
export const sweepSql = `delete from gatehouse.counters where (name, key) in (
  select name, key from gatehouse.counters where ends < clock_timestamp()
  limit ${BATCH} for update skip locked)`;

const rowShape = z.object({ name: z.string(), key: z.string(), count: z.int(), rest: z.number() });

/** What is counted of a key, and the milliseconds that are left of its window. */
export type CountedRow = z.infer<typeof rowShape>;

/** Reads a row of `countSql`. */
export function parseCounted(row: unknown): CountedRow {
  return rowShape.parse(row);
}
