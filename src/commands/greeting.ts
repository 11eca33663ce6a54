import { styleText } from "node:util";
import type { LoadedConfiguration } from "../config/load.ts";
import type { GatewayFacts } from "../gateway/facts.ts";
import { version } from "../version.ts";
import { print } from "./outcome.ts";

const LABEL_WIDTH = 15;

function printFact(label: string, fact: string): void {
  print(`  ${styleText("dim", label.padEnd(LABEL_WIDTH))}${fact}`);
}

function printFacts(
  { configuration, serviceDirectory, file }: LoadedConfiguration,
  { users, administrators, dataDirectory, url, publicUrl }: GatewayFacts,
): void {
  const names = administrators.join(", ");
  if (publicUrl !== url) printFact("Public URL", publicUrl);
  printFact("Users", `${users}; administrators: ${names || "none"}`);
  printFact("Access file", `${configuration.auth.access_control_file} (edit it live)`);
  printFact("Files", serviceDirectory);
  printFact("Configuration", file ?? "defaults (see gateway.toml.example)");
  const files = `SQLite files in ${dataDirectory}`;
  const { url: one = "", urls = [one] } = configuration.upstream;
  printFact("Database", dataDirectory === undefined ? urls.join(", ") : files);
}

/** Tells a person on a terminal what they want to know after a start. */
export function greet(loaded: LoadedConfiguration, facts: GatewayFacts): void {
  const { firstPassword, url, administrators } = facts;
  print("");
  print(`${styleText("bold", `Gatehouse ${version}`)} listens on ${styleText("cyan", url)}`);
  print("");
  printFacts(loaded, facts);
  const password = firstPassword?.kind === "shown" ? firstPassword.password : "<password>";
  if (firstPassword?.kind === "shown") {
    const [name, secret] = [styleText("bold", "admin"), styleText("bold", password)];
    print("");
    print(`  The administrator is ${name}, and its password, shown only now, is ${secret}`);
  }
  print("");
  print("Next, in another terminal:");
  print("");
  const body = JSON.stringify({ username: administrators[0] ?? "admin", password });
  print(`  curl -s ${url}/login -H 'Content-Type: application/json' -d '${body}'`);
  print("");
}
