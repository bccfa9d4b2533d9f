package io.aliquot.scheduler.inspection;

import com.github.benmanes.caffeine.cache.Ticker;
import io.aliquot.scheduler.ledger.Ledger;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class InspectionConfiguration {
    @Bean
    Access access(Reviews reviews) {
        return new Access(reviews, Ticker.systemTicker());
    }

    @Bean
    Stock stock(Ledger ledger) {
        return new Stock(ledger);
    }

    /** Paths below /api reach us by the API's own port alone (package server). */
    @Bean
    FilterRegistrationBean<TokenFilter> tokens(Access access) {
        var registration = new FilterRegistrationBean<>(new TokenFilter(access));
        registration.addUrlPatterns("/api/*");
        return registration;
    }
}
