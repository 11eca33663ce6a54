import { writeFileSync } from "node:fs";
import path from "node:path";
import { freePort } from "../../kit/free-port.ts";
import { temporaryHome } from "../../kit/gateway.ts";
import { SystemProgram } from "../../store/faults/program.ts";
import type { Teardown } from "../guarded.ts";
import { giveToOwner } from "./binaries.ts";

export interface Pooler {
  readonly port: number;
  readonly program: SystemProgram;
}

/**
 * Starts PgBouncer, whose transactions share connections to a server. Undefined if it is absent.
 *
 * @param settings keys of `[pgbouncer]`
 */
export async function startPooler(
  t: Teardown,
  server: number,
  settings: string,
): Promise<Pooler | undefined> {
  const directory = temporaryHome(t);
  const [users, file] = [path.join(directory, "users.txt"), path.join(directory, "pgbouncer.ini")];
  const port = await freePort();
  writeFileSync(users, '"gatehouse" ""\n');
  writeFileSync(
    file,
    `[databases]
* = host=127.0.0.1 port=${server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = transaction
${settings}
`,
  );
  for (const one of [directory, users, file]) giveToOwner(one);
  const program = SystemProgram.find(t, "pgbouncer", [file]);
  program?.start();
  return program && { port, program };
}
