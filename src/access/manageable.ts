import { maySeeGrants, requireManager } from "./administration-rights.ts";
import { EVERY_DATABASE } from "./roles.ts";
import {
  grantsOf,
  isAdministrator,
  type Snapshot,
  type User,
  type UserView,
  viewUser,
} from "./snapshot.ts";
import type { Subject } from "./subject.ts";

/** The users that a caller may manage, and what of them it may see. */
export interface Manageable {
  isVisible(database: string): boolean;
  isManageable(user: User): boolean;
  /** A user with no grants but those that the caller may see. */
  view(user: User): UserView;
}

/** @throws Refusal `role_insufficient` unless the actor may grant on some database */
export function manageableBy(snapshot: Snapshot, actor: Subject): Manageable {
  requireManager(snapshot, actor);
  const { username, tokenDatabase } = actor;
  const isOverAll = isAdministrator(snapshot, username) && tokenDatabase === EVERY_DATABASE;
  const isVisible = (database: string) => maySeeGrants(snapshot, actor, database);
  return {
    isVisible,
    isManageable: (user) => isOverAll || grantsOf(snapshot, user.username).keys().some(isVisible),
    view(user) {
      const { access, ...rest } = viewUser(snapshot, user);
      return { ...rest, access: access.filter(({ database }) => isVisible(database)) };
    },
  };
}
