import * as z from "zod";
import type { Database } from "./database.ts";
import { FORM, readHead } from "./log.ts";
import { MIGRATIONS, readMigrations } from "./migrations.ts";

const leaseShape = z.object({
  name: z.string(),
  since: z.coerce.date(),
  applied: z.int(),
  form: z.int(),
  /** Seconds; negative once it has run out. */
  rest: z.number(),
});

/** A replica as the store knows it. */
type LeaseStatus = z.infer<typeof leaseShape>;

/** What is known of a store. */
export interface StoreStatus {
  readonly version: number;
  readonly accessVersion: number;
  /** The form of its log, and what this version of Gatehouse reads. */
  readonly form: number;
  readonly readableForm: number;
  /** Migrations that it has taken, and those that this version knows. */
  readonly migrations: number;
  readonly knownMigrations: number;
  readonly replicas: readonly LeaseStatus[];
}

/** Leases that ended long ago are of replicas that are gone. */
const leasesSql = `select name, since, applied, form,
    extract(epoch from expires - clock_timestamp())::float8 as rest
  from gatehouse.leases where expires > clock_timestamp() - interval '1 hour' order by name`;

/** @throws Refusal `store_unreachable` */
export async function readStatus(database: Database): Promise<StoreStatus> {
  const { version, accessVersion, form } = await readHead(database.query);
  const leases = await database.query(leasesSql);
  return {
    ...{ version, accessVersion, form, readableForm: FORM },
    ...{ migrations: await readMigrations(database.query), knownMigrations: MIGRATIONS },
    replicas: leases.map((lease) => leaseShape.parse(lease)),
  };
}
