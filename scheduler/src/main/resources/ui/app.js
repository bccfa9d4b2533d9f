// The frame of the page: navigation, the state of the connection, and the view that the address names.
import { html, render, useEffect, useReducer, useState } from './standalone.module.js';
import { connection } from './api.js';
import { Link, TextField, announce, setAnnouncer, time, useParams } from './parts.js';
import { Cluster } from './cluster.js';
import { Gpu } from './gpu.js';
import { Pending } from './pending.js';
import { Pod } from './pod.js';
import { Pods } from './pods.js';
import { Quotas } from './quotas.js';

/** By the parameter "view" of the address: title, component, and the view in the navigation that it belongs to. */
const VIEWS = {
  cluster: ['Cluster', Cluster],
  pods: ['Pods', Pods],
  pending: ['Pending', Pending],
  quotas: ['Quotas', Quotas],
  gpu: ['GPU', Gpu, 'cluster'],
  pod: ['Pod', Pod, 'pods'],
};

function Connection() {
  const [, changed] = useReducer((version) => version + 1, 0);
  useEffect(() => {
    connection.listeners.add(changed);
    return () => connection.listeners.delete(changed);
  }, []);
  const away = connection.away;
  useEffect(() => {
    if (away) announce('The API does not answer.');
    else if (connection.answeredAt) announce('The API answers.');
  }, [!away]);
  return away
    ? html`<div class="banner" role="alert">
        <strong>The API does not answer</strong> since ${time(away.since)}: ${away.message}. The page shows what it knew
        then, and tries again.
      </div>`
    : null;
}

function Namespace({ value, change }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const commit = () => text.trim() !== value && change(text.trim());
  return html`<${TextField}
    label="Namespace"
    size="14"
    placeholder="all"
    spellcheck=${false}
    autocomplete="off"
    value=${text}
    change=${setText}
    onBlur=${commit}
    onKeyDown=${(event) => event.key === 'Enter' && commit()}
  />`;
}

function App() {
  const [params, change] = useParams();
  const [said, say] = useState('');
  useEffect(() => setAnnouncer(say), []);
  const current = VIEWS[params.view] ? params.view : 'cluster';
  const [title, View, parent] = VIEWS[current];
  const namespace = params.namespace ?? '';
  useEffect(() => {
    document.title = `${params.name ?? params.gpu ?? title} – Aliquot`;
  }, [title, params.name, params.gpu]);
  return html`
    <a class="skip" href="#main">Skip to content</a>
    <header>
      <div class="brand">Aliquot</div>
      <nav aria-label="Views">
        ${Object.entries(VIEWS)
          .filter(([, [, , below]]) => !below)
          .map(
            ([view, [name]]) => html`<${Link}
              key=${view}
              to=${{ view, namespace: parent ? '' : namespace }}
              aria-current=${view === current ? 'page' : view === parent ? 'true' : undefined}
              >${name}<//
            >`,
          )}
      </nav>
      ${!parent && html`<${Namespace} value=${namespace} change=${(wanted) => change({ namespace: wanted })} />`}
    </header>
    <${Connection} />
    <main id="main" tabindex="-1"><${View} params=${params} change=${change} /></main>
    <div class="visually-hidden" role="status">${said}</div>
  `;
}

render(html`<${App} />`, document.getElementById('app'));
