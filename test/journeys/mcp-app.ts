/** What apps do on their way to `/mcp`, and their users in a browser. */
import type { Browser } from "playwright-core";
import type { Test } from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { type RunOptions, startGateway, type TestGateway } from "../kit/gateway.ts";
import type { Notebook } from "../oauth/notebook.ts";
import { passwordOf, staffedHome, tokenOf } from "./staff.ts";

const grants = ["root * Owner", "alice main ReadWrite", "alice archive ReadOnly"];
const columns = [{ name: "id", type: "int", primary_key: true }];

/** A gateway over its own engine, with a table in each of two databases. */
export async function openWithTables(t: Test, options: RunOptions = {}): Promise<TestGateway> {
  const gateway = await startGateway(t, { home: await staffedHome(t, grants), ...options });
  const root = await tokenOf(gateway, "root");
  for (const database of ["main", "archive"]) {
    await gateway.query({ CreateDatabase: { database } }, root);
    await gateway.query({ CreateTable: { database, table: "t", columns } }, root);
  }
  return gateway;
}

/** What a user lets an app do, and what it is to see on the way. */
export interface Permission {
  /** The only database; without one, all. */
  readonly database?: string;
  readonly reach: "Only read" | "Read and change";
  /** Texts that the consent page must hold. */
  readonly sees?: readonly string[];
}

/** Logs alice in on the page that an app leads to, and lets it in; what the app is answered. */
export async function letIn(
  browser: Browser,
  notebook: Notebook,
  { database, reach, sees = [] }: Permission,
): Promise<URLSearchParams> {
  const context = await browser.newContext();
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  await page.goto(notebook.sentTo?.href ?? "");
  await page.getByLabel("Username").fill("alice");
  await page.getByLabel("Password").fill(passwordOf("alice"));
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Let Notebook use your databases?" }).waitFor();
  for (const text of sees) await page.getByText(text, { exact: true }).waitFor();
  await page.getByLabel("Which databases?").selectOption(database ?? "*");
  await page.getByLabel(reach).check();
  await page.getByRole("button", { name: "Allow" }).click();
  await page.waitForURL(`${notebook.redirectUrl}?**`);
  const { searchParams } = new URL(page.url());
  await context.close();
  return searchParams;
}
