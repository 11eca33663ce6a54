import { existsSync } from "node:fs";
import { Command } from "commander";
import { namesWithoutRecord } from "../access/parse.ts";
import { keysDirectoryOf } from "../gateway/open-identity.ts";
import { readKeyFiles } from "../identity/key-file.ts";
import { type CommonOptions, loadFor, readAccess, withCommonOptions } from "./files.ts";
import { print } from "./outcome.ts";

async function check(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const { auth } = loaded.configuration;
  print(`configuration  ok  ${loaded.file ?? "(none: defaults)"}`);
  const keys = keysDirectoryOf(loaded.serviceDirectory);
  if (existsSync(keys)) {
    const found = await readKeyFiles(keys, { checkRead: auth.check_permissions });
    print(`signing keys   ok  ${keys} (${found.length})`);
  } else if (!existsSync(auth.access_control_file)) {
    print(`access file    --  ${auth.access_control_file} is made by the first start`);
    return;
  }
  const snapshot = await readAccess(loaded);
  const grants = [...snapshot.grants.values()].reduce((sum, own) => sum + own.size, 0);
  const counts = `${snapshot.users.size} users, ${grants} grants, version ${snapshot.version}`;
  print(`access file    ok  ${auth.access_control_file} (${counts})`);
  for (const name of namesWithoutRecord(snapshot)) {
    process.stderr.write(`warning: there are grants for ${name}, but no record\n`);
  }
}

/** `gatehouse config`: the files that the gateway reads. */
export function configCommand(): Command {
  const config = new Command("config").description("check the files that the gateway reads");
  withCommonOptions(config.command("check"))
    .description("check the configuration, the keys and the access file, and change nothing")
    .action(check);
  return config;
}
