import * as z from "zod";
import { epochSeconds } from "../../core/base/clock.ts";
import { hashId } from "../../core/base/sealed-bytes.ts";
import { parseAccountId } from "../oauth/server/connections.ts";
import { lifetimes } from "../oauth/server/protocol.ts";
import type { StateCopy } from "../oauth/server/state-file.ts";
import { recordsIn } from "../oauth/server/state-records.ts";
import type { AuthorizationState, StateStore } from "../oauth/server/state-store.ts";
import type { StoreAccess } from "./access-store.ts";
import type { Database, Query, Row } from "./database.ts";
import { addKeys } from "./key-table.ts";
import { queryIfReachable } from "./replica.ts";
import type { SealedTable, Secrets } from "./secrets.ts";

export const sealedRecords: SealedTable = {
  table: "gatehouse.oauth",
  keys: ["model", "id"],
  column: "sealed",
  contextOf: ({ model, id }) => `the record ${model} ${id} of the authorization server`,
};

function decryptRecord(row: Row, secrets: Secrets): string {
  return secrets.decrypt(String(row.sealed), sealedRecords.contextOf(row));
}

const namesShape = z.object({ accountId: z.string().optional(), iat: z.int().optional() });

const SWEEP_MS = 10 * 60 * 1000;
const SWEEP_BATCH = 1000;

const noteSql = `insert into gatehouse.oauth (model, id, grant_id, uid, sealed, expires)
  values ('Call', $1, $2, $3, '', clock_timestamp() + make_interval(secs => $4))
  on conflict (model, id) do nothing`;
const grantsSql = `select model, id, sealed,
    (select max(t.issued) from gatehouse.oauth t where t.grant_id = g.id
      and t.model = 'RefreshToken' and t.expires > clock_timestamp()) as renewed,
    (select coalesce(array_agg(c.uid order by c.uid collate "C"), '{}') from gatehouse.oauth c
      where c.grant_id = g.id and c.model = 'Call') as called
  from gatehouse.oauth g where model = 'Grant' and expires > clock_timestamp()`;

const importConsumedSql = `update gatehouse.oauth set consumed = coalesce(consumed, to_timestamp($3))
  where model = $1 and id = $2`;

const grantShape = z.object({ renewed: z.int().nullable(), called: z.array(z.string()) });
const idShape = z.object({ jti: z.string() });
const secretShape = z.object({ secret: z.base64url() });

/** The `jti` under which the log revokes a grant. It cannot equal a token id. */
function revokedGrantId(grantId: string): string {
  return `grant:${grantId}`;
}

export async function sweep(query: Query): Promise<void> {
  const sql = `delete from gatehouse.oauth where (model, id) in (
    select model, id from gatehouse.oauth where expires <= clock_timestamp()
    order by expires limit ${SWEEP_BATCH} for update skip locked) returning id`;
  while ((await query(sql)).length === SWEEP_BATCH);
}

/**
 * Keeps the state of the authorization server in the store: one row per record, expiring by the
 * store's clock. Ids are stored as hashes, and payloads encrypted. The end of a grant or a token is also written to the log, since every request with
 * a token checks it. The call resolves when that is in force at every replica.
 */
export function stateInStore(
  { state, writer, replica }: StoreAccess,
  database: Database,
  secrets: Secrets,
): StateStore {
  const query = queryIfReachable(database, replica);
  const records = recordsIn({
    name: "gatehouse.oauth",
    now: "clock_timestamp()",
    second: "interval '1 second'",
    since: (time) => `extract(epoch from clock_timestamp() - ${time})::float8`,
    lock: "order by model, id for update",
    columns: ["sealed", "username", "issued"],
    write(model, id, payload) {
      const { accountId, iat } = namesShape.parse(JSON.parse(payload));
      const isOfUser = model === "Grant" && accountId !== undefined;
      const username = isOfUser ? parseAccountId(accountId).username : null;
      return [
        secrets.encrypt(payload, sealedRecords.contextOf({ model, id })),
        username,
        iat ?? null,
      ];
    },
    read: (row) => decryptRecord(row, secrets),
    keyOf: hashId,
    query,
  });

  function isRevoked(tokenId: string): boolean {
    replica?.requireFresh();
    return state.revocations.isRevoked({ tokenId, username: "", issuedAt: 0 });
  }

  async function revoke(
    jti: string,
    until: number,
    removeFirst?: (query: Query) => Promise<boolean>,
  ): Promise<void> {
    await writer.append(async (turn) => {
      // Otherwise another process has ended the grant; wait until its write is in force.
      if (removeFirst !== undefined && !(await removeFirst(turn.query))) return;
      await turn.append({
        change: { kind: "revocation", revocation: { jti, until } },
        ends: until,
      });
    });
  }

  /** Twice the lifetime covers access tokens issued just now, by any clock. */
  function endGrant(grantId: string): Promise<void> {
    const until = epochSeconds() + 2 * lifetimes.accessToken;
    return revoke(revokedGrantId(grantId), until, (query) => records.removeGrant(grantId, query));
  }

  const sweepTimer =
    replica && setInterval(() => void sweep(query).catch(() => {}), SWEEP_MS).unref();

  return {
    ...records,
    async remove(model, id) {
      if (model === "Grant") await endGrant(id);
      else await records.remove(model, id);
    },
    endGrant,
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
      const key = hashId(`${grantId} ${tool}`);
      await query(noteSql, [key, hashId(grantId), tool, expires - epochSeconds()]);
    },
    revokeToken: (tokenId, until) => revoke(tokenId, until),
    isTokenRevoked: isRevoked,
    isGrantEnded: (grantId) => isRevoked(revokedGrantId(grantId)),
    async secret(name, proposed) {
      const payload = JSON.stringify({ secret: Buffer.from(proposed).toString("base64url") });
      const expires = epochSeconds() + lifetimes.forever;
      await records.insertMissing("Secret", name, { payload, expires });
      const kept = (await records.find("Secret", name))?.payload ?? payload;
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
    if (consumed !== undefined) await query(importConsumedSql, [model, hashId(id), consumed]);
  }
  for (const { tokenId, until } of revoked) await authorization.store.revokeToken(tokenId, until);
  for (const { name, value } of secrets) await authorization.store.secret(name, value);
  await addKeys(authorization.keys, keys);
}
