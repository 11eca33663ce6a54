import { rm } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { styleText } from "node:util";
import { storeName, storesAccess, withoutPassword } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { GatewayFacts } from "../gateway/start.ts";
import { invocation, version } from "../product.ts";
import { print } from "./output.ts";

const everywhere = new Map([
  ["0.0.0.0", ["IPv4"]],
  ["[::]", ["IPv4", "IPv6"]],
]);

/** Addresses of one link alone can be opened only with the name of that link. */
const linkLocal = /^fe[89ab]/i;

/** The URLs at which what listens at `url` can be opened, this machine's own first. */
function openable(url: string): string[] {
  const { hostname, port, protocol } = new URL(url);
  const families = everywhere.get(hostname);
  if (families === undefined) return [url];
  const found = Object.values(networkInterfaces())
    .flatMap((addresses = []) => addresses)
    .filter(({ family, address }) => families.includes(family) && !linkLocal.test(address))
    .toSorted((one, other) => Number(other.internal) - Number(one.internal));
  const urls = found.map(({ family, address }) => {
    const host = family === "IPv6" ? `[${address}]` : address;
    return `${protocol}//${host}${port === "" ? "" : `:${port}`}`;
  });
  return urls.length === 0 ? [url] : urls;
}

const LABEL_WIDTH = 15;

function printFact(label: string, fact: string): void {
  print(`  ${styleText("dim", label.padEnd(LABEL_WIDTH))}${fact}`);
}

/** Where the databases are, and whether they answer. */
function databaseFact({ configuration }: LoadedConfiguration, facts: GatewayFacts): string {
  const { dataDirectory, isUpstreamUp } = facts;
  if (dataDirectory !== undefined) return `SQLite files in ${dataDirectory}`;
  const { url: one = "", urls = [one] } = configuration.upstream;
  const place = urls.map(withoutPassword).join(", ");
  const trouble = "does not answer: until it does, every query is refused with 502 or 503";
  return isUpstreamUp === false ? `${place} ${styleText("red", trouble)}` : place;
}

function printFacts(loaded: LoadedConfiguration, facts: GatewayFacts): void {
  const { configuration, serviceDirectory, file } = loaded;
  const { users, administrators, url, publicUrl } = facts;
  const names = administrators.join(", ");
  const [, ...others] = openable(url);
  if (others.length > 0) printFact("Also at", others.join(", "));
  if (publicUrl !== url) printFact("Public URL", publicUrl);
  printFact("Console", facts.consoleUrl ?? 'off: set [console] listen = "127.0.0.1:8081"');
  printFact("Users", `${users}; administrators: ${names || "none"}`);
  const { access_control_file: accessFile } = configuration.auth;
  if (configuration.store.url !== undefined) printFact("Store", storeName(configuration) ?? "");
  if (!storesAccess(configuration)) printFact("Access file", `${accessFile} (edit it live)`);
  printFact("Files", serviceDirectory);
  printFact("Configuration", file ?? "defaults (see gateway.toml.example)");
  printFact("Database", databaseFact(loaded, facts));
}

/** Says how an administrator gets in: by the password just made, or by a new one. */
function printWayIn({ firstPassword, administrators: [name] }: GatewayFacts): void {
  print("");
  if (firstPassword?.kind === "shown") {
    const [admin, secret] = ["admin", firstPassword.password].map((part) =>
      styleText("bold", part),
    );
    print(`  The administrator is ${admin}, and its password, shown only now, is ${secret}`);
  } else if (firstPassword?.kind === "file") {
    print(`  The first password of admin is in ${firstPassword.file}`);
    print("  Log in, change it and delete the file.");
  }
  const remedy = name === undefined ? "user add <name> --admin" : `user password ${name}`;
  print(`  Password lost?  ${invocation} ${remedy}`);
}

/** Tells a person on a terminal what they want to know after a start. */
export async function greet(loaded: LoadedConfiguration, facts: GatewayFacts): Promise<void> {
  const { firstPassword, url, administrators } = facts;
  const [address = url] = openable(url);
  print("");
  print(`${styleText("bold", `Gatehouse ${version}`)} listens on ${styleText("cyan", address)}`);
  print("");
  printFacts(loaded, facts);
  printWayIn(facts);
  print("");
  print("Next, in another terminal:");
  print("");
  const password = firstPassword?.kind === "shown" ? firstPassword.password : "<password>";
  const body = JSON.stringify({ username: administrators[0] ?? "admin", password });
  print(`  curl -sS ${address}/login -H 'Content-Type: application/json' -d '${body}'`);
  print("");
  if (firstPassword?.kind === "shown") await rm(firstPassword.file, { force: true });
}
