import * as z from "zod";
import { epochSeconds } from "../../core/base/clock.ts";
import { parseAccountId } from "../oauth/server/connections.ts";
import { lifetimes } from "../oauth/server/protocol.ts";
import type { StateCopy } from "../oauth/server/state-file.ts";
import type { AuthorizationState, NewRecord, StateStore } from "../oauth/server/state-store.ts";
import type { StoreAccess } from "./access-store.ts";
import type { Database, Query, Row } from "./database.ts";
import { addKeys } from "./key-table.ts";
import { keyOf, type SealedTable, type Secrets } from "./secrets.ts";

function contextOf({ model, id }: Row): string {
  return `the record ${model} ${id} of the authorization server`;
}

export const sealedRecords: SealedTable = {
  table: "gatehouse.oauth",
  keys: ["model", "id"],
  column: "sealed",
  contextOf,
};

function decryptRecord(row: Row, secrets: Secrets): string {
  return secrets.decrypt(String(row.sealed), contextOf(row));
}

const namesShape = z.object({ accountId: z.string().optional(), iat: z.int().optional() });

/** For a statement whose connection was cut silently. */
const TIMEOUT_MS = 3000;
const SWEEP_MS = 10 * 60 * 1000;
const SWEEP_BATCH = 1000;

/** Locks the rows in one order, so that two processes that delete the same rows cannot deadlock. */
function deleteWhere(condition: string, more = "order by model, id for update"): string {
  return `delete from gatehouse.oauth where (model, id) in
    (select model, id from gatehouse.oauth where ${condition} ${more})`;
}

const insertSql = `insert into gatehouse.oauth
    (model, id, grant_id, uid, username, issued, sealed, expires)
  values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + make_interval(secs => $8))`;
const putSql = `${insertSql} on conflict (model, id) do update set grant_id = excluded.grant_id,
  uid = excluded.uid, username = excluded.username, issued = excluded.issued,
  sealed = excluded.sealed, expires = excluded.expires`;
const claimSql = `${insertSql} on conflict (model, id) do update set expires = excluded.expires
  where oauth.expires <= clock_timestamp() returning id`;
const noteSql = `insert into gatehouse.oauth (model, id, grant_id, uid, sealed, expires)
  values ('Call', $1, $2, $3, '', clock_timestamp() + make_interval(secs => $4))
  on conflict (model, id) do nothing`;

function findSql(column: "id" | "uid"): string {
  return `select model, id, sealed,
      extract(epoch from clock_timestamp() - consumed)::float8 as age
    from gatehouse.oauth where model = $1 and ${column} = $2 and expires > clock_timestamp() limit 1`;
}

const consumeSql = `update gatehouse.oauth set consumed = coalesce(consumed, clock_timestamp())
  where model = $1 and id = $2 and expires > clock_timestamp() and
    (consumed is null or abs(extract(epoch from clock_timestamp() - consumed)) <= $3) returning id`;
/** Written at most once a day, since a client in use gets tokens all the time. */
const keepClientSql = `update gatehouse.oauth
  set uid = null, expires = greatest(expires, clock_timestamp() + make_interval(secs => $2))
  where model = 'Client' and id = $1 and (uid is not null or
    expires < clock_timestamp() + make_interval(secs => $2) - interval '1 day')`;
/** Clients that no user has authorized yet have their address as uid. */
const countClientsSql = `select count(uid)::int as unused, count(*)::int as every
  from gatehouse.oauth where model = 'Client' and expires > clock_timestamp()`;
const forgetClientSql = `delete from gatehouse.oauth where model = 'Client' and id = (
  select id from gatehouse.oauth where model = 'Client' and (uid is null) = $1
  order by count(*) over (partition by uid) desc, expires limit 1)`;
const grantsSql = `select model, id, sealed,
    (select max(t.issued) from gatehouse.oauth t where t.grant_id = g.id
      and t.model = 'RefreshToken' and t.expires > clock_timestamp()) as renewed,
    (select coalesce(array_agg(c.uid order by c.uid collate "C"), '{}') from gatehouse.oauth c
      where c.grant_id = g.id and c.model = 'Call') as called
  from gatehouse.oauth g where model = 'Grant' and expires > clock_timestamp()`;

const importConsumedSql = `update gatehouse.oauth set consumed = coalesce(consumed, to_timestamp($3))
  where model = $1 and id = $2`;

const countShape = z.object({ unused: z.int(), every: z.int() });
const grantShape = z.object({ renewed: z.int().nullable(), called: z.array(z.string()) });
const idShape = z.object({ jti: z.string() });
const secretShape = z.object({ secret: z.base64url() });

/** The `jti` under which the log revokes a grant. It cannot equal a token id. */
function revokedGrantId(grantId: string): string {
  return `grant:${grantId}`;
}

export async function sweep(query: Query): Promise<void> {
  const some = `order by expires limit ${SWEEP_BATCH} for update skip locked`;
  const sql = `${deleteWhere("expires <= clock_timestamp()", some)} returning id`;
  while ((await query(sql)).length === SWEEP_BATCH);
}

/**
 * Keeps the state of the authorization server in the store: one row per record, expiring by the
 * store's clock. The end of a grant or a token is also written to the log, since every request with
 * a token checks it. The call resolves when that is in force at every replica.
 */
export function stateInStore(
  { state, writer, replica, author }: StoreAccess,
  database: Database,
  secrets: Secrets,
): StateStore {
  async function query(sql: string, values: readonly unknown[] = []): Promise<Row[]> {
    await replica?.requireReachable();
    return database.query(sql, values, TIMEOUT_MS);
  }

  /** Ids are stored as hashes, and payloads encrypted. */
  async function put(
    sql: string,
    model: string,
    id: string,
    { payload, grantId, uid, expires }: NewRecord,
  ): Promise<Row[]> {
    const key = keyOf(id);
    const { accountId, iat } = namesShape.parse(JSON.parse(payload));
    const isOfUser = model === "Grant" && accountId !== undefined;
    return query(sql, [
      ...[model, key],
      ...[grantId, uid].map((name) => (name === undefined ? null : keyOf(name))),
      ...[isOfUser ? parseAccountId(accountId).username : null, iat ?? null],
      ...[secrets.encrypt(payload, contextOf({ model, id: key })), expires - epochSeconds()],
    ]);
  }

  async function find(column: "id" | "uid", model: string, name: string) {
    const [row] = await query(findSql(column), [model, keyOf(name)]);
    if (row === undefined) return undefined;
    const { age } = row;
    // By this process's clock, from the time that has passed by the store's clock.
    const consumed = typeof age === "number" ? epochSeconds() - Math.ceil(age) : undefined;
    return { payload: decryptRecord(row, secrets), consumed };
  }

  function isRevoked(tokenId: string): boolean {
    replica?.requireFresh();
    return state.revocations.isRevoked({ tokenId, username: "", issuedAt: 0 });
  }

  async function revoke(
    jti: string,
    until: number,
    removeFirst?: (query: Query) => Promise<Row[]>,
  ) {
    await replica?.requireReachable();
    await writer.append(async (turn) => {
      // Without a row, another process has ended the grant; wait until its write is in force.
      if (removeFirst !== undefined && (await removeFirst(turn.query)).length === 0) return;
      await turn.append({
        change: { kind: "revocation", revocation: { jti, until } },
        ends: until,
      });
    }, author);
  }

  /** Twice the lifetime covers access tokens issued just now, by any clock. */
  function endGrant(grantId: string): Promise<void> {
    const sql = deleteWhere("grant_id = $1 or (model = 'Grant' and id = $1)");
    const until = epochSeconds() + 2 * lifetimes.accessToken;
    return revoke(revokedGrantId(grantId), until, (query) =>
      query(`${sql} returning id`, [keyOf(grantId)]),
    );
  }

  const sweepTimer =
    replica && setInterval(() => void sweep(query).catch(() => {}), SWEEP_MS).unref();

  return {
    async put(model, id, record) {
      await put(putSql, model, id, record);
    },
    find: (model, id) => find("id", model, id),
    findByUid: (model, uid) => find("uid", model, uid),
    async consume(model, id, reuse = -1) {
      return (await query(consumeSql, [model, keyOf(id), reuse])).length === 1;
    },
    async claim(model, id, expires) {
      return (await put(claimSql, model, id, { payload: "{}", expires })).length === 1;
    },
    async remove(model, id) {
      if (model === "Grant") await endGrant(id);
      else await query(deleteWhere("model = $1 and id = $2"), [model, keyOf(id)]);
    },
    async removeByGrant(model, grantId) {
      await query(deleteWhere("model = $1 and grant_id = $2"), [model, keyOf(grantId)]);
    },
    endGrant,
    async keepClient(id, expires) {
      await query(keepClientSql, [keyOf(id), expires - epochSeconds()]);
    },
    async makeRoom(bounds) {
      const [row] = await query(countClientsSql);
      const { unused, every } = countShape.parse(row);
      if (unused >= bounds.unused) await query(forgetClientSql, [false]);
      if (every - unused >= bounds.used) await query(forgetClientSql, [true]);
    },
    async grants(username) {
      const rows =
        username === undefined
          ? await query(grantsSql)
          : await query(`${grantsSql} and username = $1`, [username]);
      return rows.map((row) => {
        const payload = decryptRecord(row, secrets);
        const { renewed, called } = grantShape.parse(row);
        const { jti: id } = idShape.parse(JSON.parse(payload));
        return { id, payload, renewed: renewed ?? undefined, called };
      });
    },
    async noteCall(grantId, tool, expires) {
      const key = keyOf(`${grantId} ${tool}`);
      await query(noteSql, [key, keyOf(grantId), tool, expires - epochSeconds()]);
    },
    revokeToken: (tokenId, until) => revoke(tokenId, until),
    isTokenRevoked: isRevoked,
    isGrantEnded: (grantId) => isRevoked(revokedGrantId(grantId)),
    async secret(name, proposed) {
      const payload = JSON.stringify({ secret: Buffer.from(proposed).toString("base64url") });
      const expires = epochSeconds() + lifetimes.forever;
      const insertOnly = `${insertSql} on conflict (model, id) do nothing`;
      await put(insertOnly, "Secret", name, { payload, expires });
      const kept = (await find("id", "Secret", name))?.payload ?? payload;
      return Buffer.from(secretShape.parse(JSON.parse(kept)).secret, "base64url");
    },
    async close() {
      clearInterval(sweepTimer);
    },
  };
}

export async function importState(
  { records, revoked, secrets, keys }: StateCopy,
  authorization: AuthorizationState,
  { query }: Database,
): Promise<void> {
  for (const { model, id, consumed, ...record } of records) {
    const { grantId, payload, expires } = record;
    if (model === "Call") {
      if (grantId !== undefined) await authorization.store.noteCall(grantId, payload, expires);
      continue;
    }
    await authorization.store.put(model, id, record);
    if (consumed !== undefined) await query(importConsumedSql, [model, keyOf(id), consumed]);
  }
  for (const { tokenId, until } of revoked) await authorization.store.revokeToken(tokenId, until);
  for (const { name, value } of secrets) await authorization.store.secret(name, value);
  await addKeys(authorization.keys, keys);
}
