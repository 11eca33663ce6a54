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
  await lookAt(t, page, "roles");
});

/** The font sizes of all shown text in pixels, without those of monospaced text and of charts. */
const sizes = `(() => {
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const at = text.parentElement;
    const isOwn = at.closest("code, pre, textarea, svg, .unseen") === null;
    if (isOwn && text.data.trim() !== "") found.add(parseFloat(getComputedStyle(at).fontSize));
  }
  return [...found].sort((one, other) => one - other);
})()`;

t.test(
  "pages have one type scale, use wide screens, and link without lines in tables",
  async (t) => {
    const page = await openPage(t);
    await signInBrowser(page, url, "root");
    const found = new Set<number>();
    for (const route of [
      "overview",
      "access",
      "access/user?user=rita",
      "access/entry?user=rita",
    ].concat("access/table?place=main", "approvals", "audit", "sessions", "state", "search?q=r")) {
      await page.goto(`${url}/${route}`);
      for (const size of await page.evaluate<number[]>(sizes)) found.add(size);
      await page.setViewportSize({ width: 1920, height: 900 });
      const used = await page
        .getByRole("heading", { level: 1 })
        .evaluate((at) => at.closest("main")?.clientWidth);
      t.equal(used, 1920, route);
    }
    t.strictSame(
      [...found].sort((one, other) => one - other),
      [13, 15, 18, 24],
    );
    await page.goto(`${url}/access`);
    const underline = 'getComputedStyle(document.querySelector("td a")).textDecorationLine';
    t.equal(await page.evaluate(underline), "none");
    await page.locator("button").last().focus();
    await page.keyboard.press("Tab");
    t.equal(await page.evaluate(underline), "underline", "the focused link is underlined");
  },
);
