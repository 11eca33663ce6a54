/** How a record of the authorization server lies in the store: by hashes, and encrypted. */
import * as z from "zod";
import { parseAccountId } from "../oauth/server/connections.ts";
import type { NewRecord } from "../oauth/server/state-store.ts";
import type { Database, Row } from "./database.ts";
import { keyOf, type Secrets } from "./secrets.ts";

/** What is named when a record is encrypted: one that is put in another's place does not open. */
function placeOf({ model, id }: Row): string {
  return `the record ${model} ${id} of the authorization server`;
}

function sealRecord(row: Row, payload: string, secrets: Secrets): string {
  return secrets.encrypt(payload, placeOf(row));
}

/** What of a record's content is looked up by. */
const namesShape = z.object({ accountId: z.string().optional(), iat: z.int().optional() });

/** The columns of a record, but for when it ends. */
export const recordColumns = "model, id, grant_id, uid, username, issued, sealed";

/** The values of these columns. */
export function recordValues(
  model: string,
  id: string,
  { payload, grantId, uid }: Omit<NewRecord, "expires">,
  secrets: Secrets,
): (string | number | null)[] {
  const key = keyOf(id);
  const { accountId, iat } = namesShape.parse(JSON.parse(payload));
  const isOfUser = model === "Grant" && accountId !== undefined;
  return [
    ...[model, key],
    ...[grantId, uid].map((name) => (name === undefined ? null : keyOf(name))),
    ...[isOfUser ? parseAccountId(accountId).username : null, iat ?? null],
    sealRecord({ model, id: key }, payload, secrets),
  ];
}

/** The content of a row with `model`, `id` and `sealed`. @throws StoreKeyError */
export function openRecord(row: Row, secrets: Secrets): string {
  return secrets.decrypt(String(row.sealed), placeOf(row));
}

/** Records that one transaction encrypts anew. */
const REKEY_BATCH = 500;
const someSql = `select model, id, sealed from gatehouse.oauth
  where (model, id) > ($1, $2) and sealed <> '' order by model, id limit ${REKEY_BATCH} for update`;
const replaceSql = `update gatehouse.oauth o set sealed = anew.sealed
  from unnest($1::text[], $2::text[], $3::text[]) as anew (model, id, sealed)
  where o.model = anew.model and o.id = anew.id`;

/** Encrypts all records anew, by the first line of the key file. @returns how many there are */
export async function rekeyRecords(database: Database, secrets: Secrets): Promise<number> {
  let count = 0;
  let last: Row | undefined = { model: "", id: "" };
  while (last !== undefined) {
    const { model, id }: Row = last;
    const rows: Row[] = await database.transaction(async (query) => {
      const some = await query(someSql, [model, id]);
      const sealed = some.map((row) => sealRecord(row, openRecord(row, secrets), secrets));
      const columns = [some.map((row) => row.model), some.map((row) => row.id), sealed];
      await query(replaceSql, columns);
      return some;
    });
    count += rows.length;
    last = rows.at(-1);
  }
  return count;
}
