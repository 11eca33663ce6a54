import type { StateCopy } from "../oauth/server/state-copy.ts";
import type { AuthorizationState } from "../oauth/server/state-store.ts";
import type { Database } from "./database.ts";
import { addKeys } from "./key-table.ts";
import { keyOf } from "./secrets.ts";

const consumedSql = `update gatehouse.oauth set consumed = coalesce(consumed, to_timestamp($3))
  where model = $1 and id = $2`;

/** Keeps in the store what an authorization server has kept in files. */
export async function importState(
  { records, revoked, secrets, keys }: StateCopy,
  { store, keys: held }: AuthorizationState,
  { query }: Database,
): Promise<void> {
  for (const { model, id, consumed, ...record } of records) {
    const { grantId, payload, expires } = record;
    if (model === "Call") {
      if (grantId !== undefined) await store.noteCall(grantId, payload, expires);
      continue;
    }
    await store.put(model, id, record);
    if (consumed !== undefined) await query(consumedSql, [model, keyOf(id), consumed]);
  }
  for (const { tokenId, until } of revoked) await store.revokeToken(tokenId, until);
  for (const { name, value } of secrets) await store.secret(name, value);
  await addKeys(held, keys);
}
