// What several views share: figures with units, addresses of views, small components.
import { html, useEffect, useMemo, useReducer, useState } from './standalone.module.js';
import { collection, request } from './api.js';

const THIN = ' ';

/** A format of the browser's language, made when it is first used: each takes milliseconds. */
function lazy(make) {
  let format;
  return (value) => (format ??= make()).format(value);
}

const digits = (options) => lazy(() => new Intl.NumberFormat(undefined, options));
export const count = digits({ maximumFractionDigits: 0 });
const oneDigit = digits({ minimumFractionDigits: 1, maximumFractionDigits: 1 });
const dates = (options) => lazy(() => new Intl.DateTimeFormat(undefined, options));
const clock = dates({ hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = dates({ month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' });
const year = dates({ dateStyle: 'medium', timeStyle: 'short' });

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** An amount of memory, given in MiB. */
export function memory(mib) {
  if (mib === undefined || mib === null) return '–';
  const absolute = Math.abs(mib);
  if (absolute < 1024) return `${count(mib)} MiB`;
  if (absolute < 100 * 1024) return `${oneDigit(mib / 1024)} GiB`;
  return absolute < 2048 * 1024 ? `${count(mib / 1024)} GiB` : `${oneDigit(mib / 1048576)} TiB`;
}

export const exactMemory = (mib) => `${count(mib)} MiB`;
export const percent = (value) => (value === undefined || value === null ? '–' : `${count(value)}${THIN}%`);
export const fraction = (part, whole) => (whole > 0 ? Math.max(0, Math.min(1, part / whole)) : 0);

export function time(at) {
  const date = new Date(at);
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return clock(date);
  return (date.getFullYear() === now.getFullYear() ? day : year)(date);
}

export function duration(millis) {
  const seconds = Math.max(0, Math.round(millis / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return plural(Math.floor(seconds / 86_400), 'day');
}

// Addresses of views.

/** The parameters of the address in view. */
const params = () => Object.fromEntries(new URLSearchParams(location.search));

export function href(wanted) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(wanted)) if (value) search.set(name, value);
  return `?${search}`;
}

const navigated = new Set();
const tell = () => navigated.forEach((listener) => listener());

// The browser would scroll back before the view has its height again.
history.scrollRestoration = 'manual';
addEventListener('popstate', () => {
  tell();
  requestAnimationFrame(() => requestAnimationFrame(() => scrollTo(0, history.state?.scrolled ?? 0)));
});

/** Changes the address: as a new page of the browser's history, or in place. */
export function go(wanted, { replace = false } = {}) {
  if (replace) {
    history.replaceState(history.state, '', href(wanted));
  } else {
    history.replaceState({ scrolled: scrollY }, '');
    history.pushState(null, '', href(wanted));
  }
  tell();
  if (!replace) {
    scrollTo(0, 0);
    document.getElementById('main').focus({ preventScroll: true });
  }
}

/** The parameters of the address, and a function that changes some of them. */
export function useParams() {
  const [current, set] = useState(params);
  useEffect(() => {
    const listener = () => set(params());
    navigated.add(listener);
    return () => navigated.delete(listener);
  }, []);
  return [current, (changes) => go({ ...params(), ...changes }, { replace: true })];
}

/** A link within the page; other clicks, such as into a new window, stay the browser's. */
export function Link({ to, children, ...rest }) {
  const click = (event) => {
    if (event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      go(to);
    }
  };
  return html`<a href=${href(to)} onClick=${click} ...${rest}>${children}</a>`;
}

export const NodeLink = ({ node }) => html`<${Link} to=${{ view: 'cluster', node }}>${node}<//>`;

export const PodLink = ({ namespace, name }) => html`<${Link} to=${{ view: 'pod', namespace, name }}
  ><span class="quiet">${namespace}/</span>${name}<//
>`;

export const GpuLink = ({ uuid, children }) => html`<${Link}
  to=${{ view: 'gpu', gpu: uuid.toLowerCase() }}
  title=${uuid}
  >${children}<//
>`;

// Data.

/** A collection that stays current while the component is shown; null for none. */
export function useCollection(path, listParams) {
  const [, changed] = useReducer((version) => version + 1, 0);
  const one = path === null ? null : collection(path, listParams);
  useEffect(() => one?.subscribe(changed), [one]);
  return one;
}

/**
 * The objects of a namespace, of several with commas between them, or of all. `error` is set if no list is allowed,
 * `missing` has the refusals of some.
 */
export function useNamespaced(plural, namespace, fieldSelector) {
  const [, changed] = useReducer((version) => version + 1, 0);
  const lists = useMemo(
    () =>
      namespace === null
        ? []
        : [...new Set(namespace.split(',').map((name) => name.trim()))].map((name) =>
            collection(name ? `namespaces/${encodeURIComponent(name)}/${plural}` : plural, { fieldSelector }),
          ),
    [plural, namespace, fieldSelector],
  );
  useEffect(() => {
    const subscriptions = lists.map((list) => list.subscribe(changed));
    return () => subscriptions.forEach((end) => end());
  }, [lists]);
  const version = lists.reduce((sum, list) => sum + list.version, 0);
  const items = useMemo(
    () => (lists.length === 1 ? lists[0].items : new Map(lists.flatMap((list) => [...list.items]))),
    [lists, version],
  );
  const missing = lists.map((list) => list.error).filter(Boolean);
  return {
    lists,
    version,
    items,
    missing,
    error: lists.length > 0 && missing.length === lists.length ? missing[0] : null,
    complete: lists.every((list) => list.complete || list.error),
  };
}

export const useShares = (namespace, fieldSelector) => useNamespaced('gpushares', namespace, fieldSelector);

/** What a path answers, asked now and periodically: the last answer `of`, and an `error` after it; null asks nothing. */
export function useAnswer(path, millis) {
  const [answer, set] = useState({});
  useEffect(() => {
    if (path === null) return undefined;
    const control = new AbortController();
    const { signal } = control;
    let timer;
    const turn = async () => {
      try {
        if (!document.hidden) set({ of: await request(path, {}, { signal }) });
      } catch (error) {
        if (!signal.aborted) set((known) => ({ ...known, error }));
      }
      if (!signal.aborted) timer = setTimeout(turn, millis);
    };
    turn();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [path]);
  return answer;
}

// Components.

export const Figure = ({ label, value, note, children }) => html`
  <div class="figure">
    <span class="figure-label">${label}</span>
    <span class="figure-value">${value}</span>
    ${children}
    <span class="figure-note">${note}</span>
  </div>
`;

/** A text that the user types; other properties are the input's. */
export const TextField = ({ label, change, type = 'text', ...rest }) => html`<label class="field">
  <span>${label}</span>
  <input type=${type} onInput=${(event) => change(event.target.value)} ...${rest} />
</label>`;

/** A list of choices; the one in force is in the address. */
export const Select = ({ label, options, value, change }) => html`<label class="field">
  <span>${label}</span>
  <select value=${value} onChange=${(event) => change(event.target.value)}>
    ${options.map(
      ([name, text]) => html`<option key=${name} value=${name} selected=${name === value}>${text}</option>`,
    )}
  </select>
</label>`;

/** What a container uses of its GPU time, borrows and lends. */
export function gpuTime({ usage, cores, policy }) {
  const isLimited = policy === 'elastic' || (cores && policy !== 'none');
  return [
    `${percent(usage?.utilizationPercent)} of ${isLimited ? percent(cores) : 'all, no limit'}`,
    usage?.borrowedPercent && `${percent(usage.borrowedPercent)} borrowed`,
    usage?.lentPercent && `${percent(usage.lentPercent)} lent`,
  ]
    .filter(Boolean)
    .join(', ');
}

export const Bar = ({ label, value, limit, text, note, tone = '' }) => html`
  <${Figure} label=${label} value=${text} note=${note}>
    <span class="bar ${tone}"><span style=${{ width: `${fraction(value, limit) * 100}%` }}></span></span>
  <//>
`;

/** A table with these titles of its columns; the children are its rows. */
export const Table = ({ titles, children }) => html`<div class="table-frame">
  <table>
    <thead>
      <tr>
        ${titles.map((title) => html`<th key=${title} scope="col">${title}</th>`)}
      </tr>
    </thead>
    <tbody>
      ${children}
    </tbody>
  </table>
</div>`;

/** What cannot be shown, and what to do. */
export const Missing = ({ title, children }) => html`
  <section class="notice" aria-label=${title}><h2>${title}</h2><p>${children}</p></section>
`;

/** The form for namespaces, where the list of all is not allowed. */
export function Namespaces({ error, namespace = '', change, what = 'pods' }) {
  const [text, setText] = useState('');
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) change({ namespace: text.trim() });
  };
  return html`<section class="notice" aria-label="Namespaces">
    <h2>
      ${`The ${what} of ${namespace || 'all namespaces'} are not yours to see`}
    </h2>
    <p>${error.message}. Kubernetes’ role view grants it, for all namespaces or one. Name those that you may see:</p>
    <form onSubmit=${submit}>
      <${TextField} label="Namespaces, separated by commas" spellcheck=${false} value=${text} change=${setText} />
      <button type="submit" class="primary">Show</button>
    </form>
  </section>`;
}

/** What is used of what is granted, as a bar with its words. */
export const ShareBar = ({ used, granted, print }) =>
  granted === undefined
    ? '–'
    : html`<span class="share-bar"
        ><span class="bar"><span style=${{ width: `${fraction(used ?? 0, granted) * 100}%` }}></span></span>
        <span>${print(used)} of ${print(granted)}</span></span
      >`;

const IDLE_AFTER = 600_000;

/** Since when a pod that holds GPU memory has not used its GPUs; null if it has lately, or that is not known. */
export function idleSince(share) {
  const at = share.status.phase === 'Bound' && share.status.usage?.lastActive;
  return at && Date.now() - Date.parse(at) > IDLE_AFTER ? new Date(at) : null;
}

let announcer = null;
export const setAnnouncer = (announce) => (announcer = announce);
/** Says a sentence to users of screen readers. */
export const announce = (sentence) => announcer?.(sentence);
