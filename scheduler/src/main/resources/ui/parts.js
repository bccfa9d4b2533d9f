// What several views share: figures with units, addresses of views, small components.
import { html, useEffect, useReducer, useState } from './standalone.module.js';
import { collection } from './api.js';

const THIN = ' ';
const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export const count = (value) => number.format(value);
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** An amount of memory, given in MiB. */
export function memory(mib) {
  if (mib === undefined || mib === null) return '–';
  const absolute = Math.abs(mib);
  if (absolute < 1024) return `${number.format(mib)} MiB`;
  if (absolute < 100 * 1024) return `${oneDigit.format(mib / 1024)} GiB`;
  return absolute < 10_000 * 1024 ? `${number.format(mib / 1024)} GiB` : `${oneDigit.format(mib / 1048576)} TiB`;
}

export const exactMemory = (mib) => `${number.format(mib)} MiB`;
export const percent = (value) => (value === undefined || value === null ? '–' : `${number.format(value)}${THIN}%`);
export const fraction = (part, whole) => (whole > 0 ? Math.max(0, Math.min(1, part / whole)) : 0);

export function time(at) {
  const date = new Date(at);
  return date.toDateString() === new Date().toDateString() ? clock.format(date) : day.format(date);
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
export const params = () => Object.fromEntries(new URLSearchParams(location.search));

export function href(wanted) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(wanted)) if (value) search.set(name, value);
  return `?${search}`;
}

const navigated = new Set();
const tell = () => navigated.forEach((listener) => listener());
addEventListener('popstate', tell);

export function go(wanted, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', href(wanted));
  tell();
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
      scrollTo(0, 0);
    }
  };
  return html`<a href=${href(to)} onClick=${click} ...${rest}>${children}</a>`;
}

// Data.

/** A collection that stays current while the component is shown; null for none. */
export function useCollection(path, listParams) {
  const [, changed] = useReducer((version) => version + 1, 0);
  const one = path === null ? null : collection(path, listParams);
  useEffect(() => one?.subscribe(changed), [one]);
  return one;
}

/** Calls an action now and periodically, until the component or a dependency goes. */
export function usePeriodically(action, millis, dependencies) {
  useEffect(() => {
    const control = new AbortController();
    let timer;
    const turn = async () => {
      if (!document.hidden) await action(control.signal);
      if (!control.signal.aborted) timer = setTimeout(turn, millis);
    };
    turn();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, dependencies);
}

// Components.

export const Bar = ({ label, value, limit, text, tone = '' }) => html`
  <div class="figure">
    <span class="figure-label">${label}</span>
    <span class="figure-value">${text}</span>
    <div class="bar ${tone}"><div style=${{ width: `${fraction(value, limit) * 100}%` }}></div></div>
  </div>
`;

/** What cannot be shown, and what to do. */
export const Missing = ({ title, children }) => html`
  <section class="notice" aria-label=${title}><h2>${title}</h2><p>${children}</p></section>
`;

let announcer = null;
export const setAnnouncer = (announce) => (announcer = announce);
/** Says a sentence to users of screen readers. */
export const announce = (sentence) => announcer?.(sentence);
