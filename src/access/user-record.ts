import type { Writable } from "../toml/values.ts";
import type { User } from "./grant.ts";

/** What a machine may change in a user's record; `undefined` takes the key out. */
export type UserUpdate = Partial<Omit<User, "username" | "attributes">> & {
  readonly attributes?: User["attributes"] | undefined;
};

/** A user's record with changes made. */
export function updatedUser(user: User, update: UserUpdate): User {
  const { attributes, ...rest } = { ...user, ...update };
  return attributes === undefined || attributes.size === 0 ? rest : { ...rest, attributes };
}

/** A user's attributes by the keys of the file; nothing where there are none. */
export function writtenAttributes({ attributes }: User): Record<string, Writable> {
  return attributes === undefined ? {} : { attributes: Object.fromEntries(attributes) };
}

/** A user's record by the keys of the file; what is as by default is left out. */
export function writtenUser(user: User): Record<string, Writable> {
  const { username, email, passwordHash, disabled, tokensValidAfter } = user;
  return {
    username,
    ...(email === undefined ? {} : { email }),
    ...(passwordHash === undefined ? {} : { password_hash: passwordHash }),
    ...(disabled ? { disabled } : {}),
    ...(tokensValidAfter === 0 ? {} : { tokens_valid_after: tokensValidAfter }),
    ...writtenAttributes(user),
  };
}
