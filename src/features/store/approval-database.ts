import {
  type ApprovalDatabase,
  ApprovalStore,
  type ApprovalTransaction,
  dueSql,
} from "../approvals/approval.ts";
import { type Query, SHORT_TIMEOUT_MS } from "./database.ts";
import type { Store } from "./open.ts";
import type { SealedTable } from "./secrets.ts";

/** Arbitrary, but all processes that work on approvals must use the same number. */
const LOCK = 0x6170_7072;

/** Epoch milliseconds. */
const clockSql = "extract(epoch from clock_timestamp()) * 1000";

export const sealedQueries: SealedTable = {
  table: "gatehouse.approvals",
  keys: ["id"],
  column: "body",
  contextOf: ({ id }) => `the query of approval ${id}`,
};

async function begin(send: Query): Promise<ApprovalTransaction> {
  const query: ApprovalTransaction["query"] = (sql, ...values) =>
    send(sql, values, SHORT_TIMEOUT_MS);
  await query("select set_config('search_path', 'gatehouse', true)");
  await query("select pg_advisory_xact_lock($1)", LOCK);
  const [row] = await send(`select floor(${clockSql})::bigint as now`);
  return { query, now: Number(row?.now) };
}

/** Opens the approvals of all replicas. Query bytes are encrypted, and kept after the decision. */
export function approvalsInStore(
  { database, secrets }: Store,
  keepDays: number,
  requireReachable: () => Promise<void> = async () => {},
): ApprovalStore {
  const tables: ApprovalDatabase = {
    async transaction(work) {
      await requireReachable();
      return database.transaction(async (query) => work(await begin(query)));
    },
    async hasDue(keepMs) {
      await requireReachable();
      const sql = dueSql("gatehouse", clockSql);
      return (await database.query(sql, [keepMs], SHORT_TIMEOUT_MS)).length > 0;
    },
    encrypt: (id, body) => secrets.encryptBytes(body, sealedQueries.contextOf({ id })),
    decrypt: (id, sealed) =>
      secrets.decryptBytes(Buffer.from(sealed), sealedQueries.contextOf({ id })),
    close: async () => {},
  };
  return new ApprovalStore(tables, keepDays);
}
