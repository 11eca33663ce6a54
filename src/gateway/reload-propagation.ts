import type { LiveRevocations } from "../identity/revocations.ts";
import type { Membership } from "./member.ts";

type TellOthers = Membership["tellOthers"];

/** Revocations of which one is over when the token is refused in every process of the gateway. */
export function revocationsInStep(own: LiveRevocations, tellOthers: TellOthers): LiveRevocations {
  return {
    isRevoked: (token) => own.isRevoked(token),
    earliestIssue: (username) => own.earliestIssue(username),
    get users() {
      return own.users;
    },
    get stale() {
      return own.stale;
    },
    async revokeToken(token) {
      await own.revokeToken(token);
      await tellOthers("revocations");
    },
    async revokeUser(username, before) {
      await own.revokeUser(username, before);
      await tellOthers("revocations");
    },
    reload: () => own.reload(),
    close: () => own.close(),
  };
}
