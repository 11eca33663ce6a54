import t from "tap";
import {
  auditFile,
  lookAt,
  openPage,
  signedIn,
  signInBrowser,
  staffedConsole,
  textOf,
} from "./kit.ts";

const staff = ["root * Owner", "dora main DbAdmin", "walt main ReadWrite", "rita main ReadOnly"];
const more = '[[acl]]\nusername = "rita"\ndatabase = "payroll"\nrole = "None"\n';
const { url } = await staffedConsole(t, staff, auditFile, more);

t.test("an empty list says what to do next", async (t) => {
  const client = await signedIn(t, url, "root");
  const textOn = async (route: string) => textOf((await client.get(route)).text);
  await client.submit("/access/members", { user: "", name: "readers", members: "" });
  for (const [route, text] of [
    ["/access/user?user=group:readers", "No members yet. The grants of this group apply to"],
    [
      "/access/user?user=group:readers",
      "No grants. Add the first entry for a database or a table.",
    ],
    ["/access/user?user=rita", "No tokens. Issue one with gatehouse token issue rita ."],
    ["/access/groups?user=unknown", "Add one to give several users the same access."],
    ["/sessions?user=rita", "An app appears here after a user has allowed it."],
    ["/audit?user=unknown", "Show all lines , or search all time ."],
  ] as const) {
    t.match(await textOn(route), text, route);
  }
  const dora = await signedIn(t, url, "dora");
  const { text } = await dora.get("/access/groups?user=unknown");
  t.notMatch(text, "Add one", "only administrators may");
  const page = await openPage(t);
  await signInBrowser(page, url, "root");
  for (const [label, link, target] of [
    ["/access/user?user=group:readers", "Add the first entry", "Grant access to group readers"],
    ["/audit?user=unknown&since=1h", "search all time", "Audit"],
  ] as const) {
    await page.goto(`${url}${label}`);
    await lookAt(t, page, `empty-${target}`);
    await page.locator(".empty a").filter({ hasText: link }).click();
    await page.getByRole("heading", { name: target }).waitFor();
  }
  t.equal(await page.getByLabel("User").inputValue(), "unknown");
  t.equal(await page.getByLabel("Period").inputValue(), "");
});

t.test("each role has a color of its own, in light and dark mode", async (t) => {
  const page = await openPage(t);
  await signInBrowser(page, url, "root");
  await page.goto(`${url}/access`);
  const found = `Object.fromEntries(Array.from(document.querySelectorAll(".role"), (one) =>
    [one.textContent, getComputedStyle(one).color + getComputedStyle(one).backgroundColor]))`;
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    const colors = await page.evaluate<Record<string, string>>(found);
    const roles = ["DbAdmin", "None", "Owner", "ReadOnly", "ReadWrite"];
    t.strictSame(Object.keys(colors).sort(), roles, colorScheme);
    t.equal(new Set(Object.values(colors)).size, roles.length, colorScheme);
  }
  for (const width of [390, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    const over = "document.documentElement.scrollWidth - window.innerWidth";
    t.ok(Number(await page.evaluate(over)) <= 0, `the page fits ${width} pixels`);
  }
  await lookAt(t, page, "roles");
});
