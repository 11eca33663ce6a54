import type { Subject } from "../access/policy.ts";
import type { Exchange } from "./exchange.ts";

/** Who asks, for the policy; undefined while authentication is off. */
export function subjectOf({ caller }: Exchange): Subject | undefined {
  if (caller === undefined) return undefined;
  return { username: caller.user.username, tokenDatabase: caller.token.database };
}
