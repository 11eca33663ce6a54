import { isAdministrator, type Snapshot } from "../access/snapshot.ts";
import type { FirstPassword } from "./service-directory.ts";

/** What is told of a gateway that has started. */
export interface GatewayFacts {
  /** Where it listens, as a URL. */
  readonly url: string;
  /** How clients reach it: the same, unless a front is configured. */
  readonly publicUrl: string;
  /** Set if this was the first start, or if what that has made up was not seen yet. */
  readonly firstPassword: FirstPassword | undefined;
  /** Where the embedded engine keeps its databases; undefined if the upstream is another's. */
  readonly dataDirectory: string | undefined;
  /** Whether the databases answer; undefined if nobody is there to be told. */
  readonly isUpstreamUp: boolean | undefined;
  readonly accessVersion: string;
  /** How many users there are. */
  readonly users: number;
  /** The first few administrators. */
  readonly administrators: readonly string[];
}

/** Administrators that are named; there may be many. */
const NAMED = 5;

/** What is told of the access file. */
export function accessFacts(
  snapshot: Snapshot,
): Pick<GatewayFacts, "accessVersion" | "users" | "administrators"> {
  return {
    accessVersion: snapshot.version,
    users: snapshot.users.size,
    administrators: snapshot.users
      .keys()
      .filter((name) => isAdministrator(snapshot, name))
      .take(NAMED)
      .toArray(),
  };
}
