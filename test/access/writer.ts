/**
 * A process that adds users to an access file, for tests of writers side by side:
 * `writer.ts FILE PREFIX COUNT`, all at one time, or one after another without end if COUNT is 0;
 * then it prints the name of each once it is on disk.
 * With a user id as a fourth argument it acts as that user. A refusal after tokens were revoked says so.
 */
import { planAddUser } from "../../src/core/access/administration.ts";
import { changeAccessFile } from "../../src/core/access/write.ts";
import { Refusal } from "../../src/core/base/refusal.ts";

const [file = "", prefix = "", count = "1", userId] = process.argv.slice(2);

let hasRevoked = false;
const beforeWrite = async () => {
  hasRevoked = true;
};

async function add(number: number): Promise<string> {
  const username = `${prefix}-${number}`;
  const user = { username, email: undefined, passwordHash: undefined, disabled: false };
  await changeAccessFile(
    file,
    (current) => planAddUser(current, "operator", { ...user, tokensValidAfter: 0 }, undefined),
    { beforeWrite },
  );
  return username;
}

async function run(): Promise<void> {
  if (userId !== undefined) process.seteuid?.(Number(userId));
  if (count === "0") {
    process.stdout.write("ready\n");
    for (let number = 0; ; number += 1) process.stdout.write(`${await add(number)}\n`);
  }
  await Promise.all(Array.from({ length: Number(count) }, (_, number) => add(number)));
}

try {
  await run();
} catch (error) {
  process.stdout.write(error instanceof Refusal ? error.code : String(error));
  if (hasRevoked) process.stdout.write(" after revoking");
  process.exitCode = 1;
}
