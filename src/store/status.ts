import * as z from "zod";
import type { Database } from "./database.ts";
import { FORM, readHead } from "./log.ts";
import { MIGRATIONS, readMigrations } from "./migrations.ts";

const leaseShape = z.object({
  name: z.string(),
  since: z.coerce.date(),
  applied: z.int(),
  form: z.int(),
  /** Seconds; negative after expiry. */
  rest: z.number(),
});

/** Leases that expired long ago belong to replicas that no longer exist. */
const leasesSql = `select name, since, applied, form,
    extract(epoch from expires - clock_timestamp())::float8 as rest
  from gatehouse.leases where expires > clock_timestamp() - interval '1 hour' order by name`;

export type StoreStatus = Awaited<ReturnType<typeof readStatus>>;

/** @throws Refusal `store_unreachable` */
export async function readStatus(database: Database) {
  const { version, accessVersion, form } = await readHead(database.query);
  const leases = await database.query(leasesSql);
  return {
    ...{ version, accessVersion },
    ...{ form, readableForm: FORM },
    ...{ migrations: await readMigrations(database.query), knownMigrations: MIGRATIONS },
    replicas: leases.map((lease) => leaseShape.parse(lease)),
  };
}
