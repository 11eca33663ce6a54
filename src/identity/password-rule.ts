import type { Configuration } from "../config/schema.ts";
import { Refusal } from "../refusal.ts";
import { normalized, requireUsablePassword } from "./password.ts";

/** Asked wherever a password is set. @throws Refusal saying why it may not be */
export type PasswordRule = (password: string) => void;

/** Common passwords, in lower case. */
async function commonPasswords(): Promise<ReadonlySet<string>> {
  // Loaded here, since it is large and most gateways do without.
  const { dictionary } = await import("@zxcvbn-ts/language-common");
  return new Set(dictionary["passwords-common"].map((password) => password.toLowerCase()));
}

/** What a password must be where this configuration holds. */
export async function openPasswordRule({ auth }: Configuration): Promise<PasswordRule> {
  if (!auth.refuse_common_passwords) return requireUsablePassword;
  const common = await commonPasswords();
  return (password) => {
    requireUsablePassword(password);
    if (common.has(normalized(password).toLowerCase())) throw new Refusal("password_common");
  };
}
