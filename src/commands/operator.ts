import { Refusal, type RefusalCode } from "../refusal.ts";

type Message = (username: string, database: string) => string;

/** The codes that are about a user or a grant, each with what the operator is told. */
const messages: Partial<Record<RefusalCode, Message>> = {
  user_not_found: (username) => `User not found: ${username}`,
  user_exists: (username) => `User already exists: ${username}`,
  grant_not_found: (username, database) => `Grant not found: ${username} on ${database}`,
  no_grant: (username, database) => `Grant not found: ${username} on ${database}`,
  database_case_mismatch: (username, database) =>
    `Grant not found: ${username} on ${database}; the file names that database in another case`,
};

/** A refusal that names the user whom it is about, and the database if there is one. */
export function refusalOf(code: RefusalCode, username: string, database = "*"): Refusal {
  const message = messages[code]?.(username, database);
  return new Refusal(code, message === undefined ? {} : { message });
}

/**
 * Does what concerns one user, and names that user in what refuses it: the operator has typed the
 * name, and a script may have typed many.
 *
 * @throws whatever `work` throws; a Refusal about the user or its grant with the names in its
 *   message
 */
export async function namingUser<T>(
  username: string,
  work: () => T | Promise<T>,
  database?: string,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refusal) || messages[error.code] === undefined) throw error;
    throw refusalOf(error.code, username, database);
  }
}
