import type { Change } from "./change.ts";
import { LayeredMap } from "./layered-map.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { type Grant, grantsOf, type Snapshot, type User } from "./snapshot.ts";

/** A change after which another one can be judged without reading the file again. */
export type DraftedChange = Exclude<Change, { kind: "remove-user" | "remove-grant" }>;

/** True unless the change takes a record away. */
export function isDrafted(change: Change): change is DraftedChange {
  return change.kind !== "remove-user" && change.kind !== "remove-grant";
}

/** What the file will say once changes are made that are not written yet. */
export class Draft {
  readonly #users = new Map<string, User>();
  readonly #grants = new Map<string, ReadonlyMap<string, Grant>>();
  readonly #databases = new Map<string, string>();
  /** The state as it will be; the version is that of the file as it is. */
  readonly snapshot: Snapshot;

  constructor({ version, users, grants, databases }: Snapshot) {
    this.snapshot = {
      version,
      users: new LayeredMap(users, this.#users),
      grants: new LayeredMap(grants, this.#grants),
      databases: new LayeredMap(databases, this.#databases),
    };
  }

  #give(grant: Grant): void {
    const { username, database } = grant;
    const own = new Map(grantsOf(this.snapshot, username));
    this.#grants.set(username, own.set(database, grant));
    if (database !== EVERY_DATABASE) this.#databases.set(database.toLowerCase(), database);
  }

  make(change: DraftedChange): void {
    switch (change.kind) {
      case "add-user":
        this.#users.set(change.user.username, change.user);
        break;
      case "update-user": {
        const user = this.snapshot.users.get(change.username);
        if (user !== undefined) this.#users.set(change.username, { ...user, ...change.update });
        break;
      }
      case "add-grant":
      case "set-grant":
        this.#give(change.grant);
        break;
    }
  }
}
