/**
 * Runs the official conformance suite of the Model Context Protocol and prints the results by scenario: a
 * separate MCP server directly, the same one behind the gateway, the embedded server, and the embedded
 * authorization server. Fails if a check passes directly but not behind the gateway. `npm run conformance`
 */
import path from "node:path";
import { FixtureServer } from "../test/mcp/fixture-server.ts";
import { runAuthorizationSuite } from "./conformance/authorization.ts";
import { registerClientTools } from "./conformance/client-tools.ts";
import { startGateway } from "./conformance/gateway.ts";
import { registerInputTools, stateOptions } from "./conformance/input-tools.ts";
import { startShim } from "./conformance/shim.ts";
import { type Results, type Revision, revisions, runServerSuite } from "./conformance/suite.ts";
import { lost, markdownTable } from "./conformance/table.ts";
import { installPackages } from "./install.ts";

interface Servers {
  readonly alone: string;
  readonly behind: string;
  readonly embedded: string;
}

function losses(alone: Results, behind: Results): string[] {
  return [...alone].flatMap(([scenario, checks]) =>
    lost(checks, behind.get(scenario)).map((check) => `${scenario}: ${check}`),
  );
}

async function compare(revision: Revision, servers: Servers): Promise<string[]> {
  const alone = await runServerSuite(servers.alone, revision);
  const behind = await runServerSuite(servers.behind, revision);
  const embedded = await runServerSuite(servers.embedded, revision);
  const table = markdownTable([
    { title: "foreign server", results: alone },
    { title: "behind the gateway", results: behind },
    { title: "embedded server", results: embedded },
  ]);
  console.log(`\n### ${revision}\n\n${table}`);
  return losses(alone, behind);
}

async function main(): Promise<void> {
  installPackages(path.join(import.meta.dirname, "conformance"));
  await using opened = new AsyncDisposableStack();
  const fixture = new FixtureServer((server) => {
    registerInputTools(server);
    registerClientTools(server);
  }, stateOptions);
  const alone = await fixture.listen();
  opened.defer(() => fixture.close());
  const inFront = await startGateway(alone, opened);
  const own = await startGateway(undefined, opened);
  const servers = {
    alone,
    behind: await startShim(`${inFront.url}/mcp`, inFront.token, opened),
    embedded: await startShim(`${own.url}/mcp`, own.token, opened),
  };
  const lostChecks: string[] = [];
  for (const revision of revisions) lostChecks.push(...(await compare(revision, servers)));
  const results = await runAuthorizationSuite(own.url);
  const column = { title: "embedded authorization server", results };
  console.log(`\n### Authorization server\n\n${markdownTable([column])}`);
  if (lostChecks.length === 0) return;
  console.error(`\nLost behind the gateway:\n${lostChecks.join("\n")}`);
  process.exitCode = 1;
}

await main();
